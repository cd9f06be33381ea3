package killtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tallystick/tallystick/client"
)

// sinkCycles is one life of the server for so many of an ordinary run.
const sinkCycles = 10

// hook is a receiver that remembers by id, as receivers should, and cuts some connections after it has read all.
type hook struct {
	mu     sync.Mutex // guards what follows
	random *rand.Rand
	signed *standardwebhooks.Webhook // nil: signatures are not looked at yet
	by     map[string]string
	ids    []string // of events, in the order in which they came first
	seen   map[string]bool
	wrong  []string
	cuts   int
}

func (h *hook) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		return // the sender was killed
	}
	if h.signed != nil {
		if err := h.signed.Verify(body, r.Header); err != nil {
			h.wrong = append(h.wrong, "a signature: "+err.Error())
		}
	}
	id := r.Header.Get("webhook-id")
	if before, again := h.by[id]; again && before != string(body) {
		h.wrong = append(h.wrong, id+" came with other rows")
	}
	h.by[id] = string(body)
	var delivery struct {
		Data []struct {
			Type, ID string
			Seq      uint64
		}
	}
	if err := json.Unmarshal(body, &delivery); err != nil {
		h.wrong = append(h.wrong, err.Error())
	}
	for _, row := range delivery.Data {
		if row.Type == "usage.recorded" && !h.seen[row.ID] {
			h.seen[row.ID] = true
			h.ids = append(h.ids, row.ID)
		}
	}
	if h.random.IntN(4) == 0 {
		h.cuts++
		panic(http.ErrAbortHandler) // it has the rows, and the sender does not know
	}
}

// Given a server that is killed over and over while it delivers, when it has come back for good, then the receiver has
// every row of the ledger, in its order, and under one id always had the same rows.
func TestKilledServerDeliversEveryRow(t *testing.T) {
	h := &hook{random: rand.New(rand.NewPCG(20261116, 1)), by: map[string]string{}, seen: map[string]bool{}}
	receiver := httptest.NewServer(h)
	defer receiver.Close()
	b := build(t, "--data", filepath.Join(t.TempDir(), "data"))
	p := b.start(t)
	url := p.ready(t)
	setUp(t, url)
	h.mu.Lock()
	h.signed = createHook(t, url, receiver.URL)
	h.mu.Unlock()
	p.stop(t)
	m := &memory{facts: map[string]answer{}}
	all := []*sender{{stream: 0}, {stream: 1}, {stream: 1}}
	random := rand.New(rand.NewPCG(20261116, 2))
	for range max(1, cycles(t)/sinkCycles) {
		live(t, b, all, m, random)
		m.check(t)
	}
	p = b.start(t)
	m.life++
	c := connect(t, p.ready(t), rootKey, client.WithTenant(tenant))
	defer c.CloseIdleConnections()
	settle(t, c, all, m)
	var want []string
	for row, err := range c.AllEvents(context.Background(), client.EventFilter{Paging: client.Paging{Limit: 1000}}) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, row.ID)
	}
	until(t, "the receiver has all rows", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.ids) >= len(want)
	})
	p.stop(t)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.ids, want) || len(h.wrong) > 0 {
		t.Errorf("the receiver has %d rows in its order, the ledger %d; wrong: %q", len(h.ids), len(want), h.wrong)
	}
	if h.cuts == 0 || len(h.by) < 2 {
		t.Errorf("%d deliveries and %d cuts prove nothing", len(h.by), h.cuts)
	}
	t.Logf("%d rows in %d deliveries, %d connections cut", len(want), len(h.by), h.cuts)
}

// createHook makes a sink and returns what verifies its signatures.
func createHook(t *testing.T, url, to string) *standardwebhooks.Webhook {
	t.Helper()
	body := `{"name":"hook","kind":"webhook","url":"` + to + `","start":"beginning","batch":7}`
	r, err := http.NewRequest(http.MethodPost, url+"/v1/sinks", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+rootKey)
	r.Header.Set("Tally-Tenant", tenant)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var made struct{ Secret string }
	if err := json.NewDecoder(answer.Body).Decode(&made); err != nil || answer.StatusCode != http.StatusCreated ||
		!strings.HasPrefix(made.Secret, "whsec_") {
		t.Fatalf("the sink was answered %d: %v", answer.StatusCode, err)
	}
	verifier, err := standardwebhooks.NewWebhook(made.Secret)
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}
