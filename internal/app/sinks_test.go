package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/kafkatest"
	"github.com/tallystick/tallystick/internal/natstest"
)

// Given sinks on a real Kafka and a real NATS, when the brokers are killed and come back while events come in and the
// server restarts, then both have every event of the ledger, in its order, once for each id.
func TestBrokersThatComeAndGo(t *testing.T) {
	kafka, stream := kafkatest.Shared(t), natstest.Start(t)
	ctx := t.Context()
	if err := kafka.CreateTopic(ctx, "rows", 1); err != nil {
		t.Fatal(err)
	}
	createStream(t, stream.URL())
	settings := testSettings(t)
	settings.Sinks.AllowPrivateAddresses = true
	settings.Sinks.Timeout = 5 * time.Second
	// A minute and a half: a broker that takes longer to come back has its deliveries given up.
	settings.Sinks.Retries = slices.Repeat([]time.Duration{900 * time.Millisecond}, maxRetries)
	s := mustStart(t, settings)
	acme, key := newAcme(t, s, "calls")
	createSink(t, s, key, `{"name":"k","kind":"kafka","brokers":["`+kafka.Address()+`"],"topic":"rows",`+
		`"rows":["event"]}`)
	createSink(t, s, key, `{"name":"n","kind":"nats","servers":["`+stream.URL()+`"],"subject":"rows","rows":["event"]}`)
	n := 0
	send := func() {
		t.Helper()
		for range 50 {
			n++
			e := &client.Event{ID: fmt.Sprint("e", n), Meter: "calls", Customer: fmt.Sprint("c", n%3)}
			if _, err := acme.SendEvent(ctx, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	send()
	kafka.Kill()
	stream.Stop()
	send()
	mustStop(t, s)
	s = mustStart(t, settings)
	acme = connect(t, s, key)
	send()
	if err := kafka.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := stream.Begin(); err != nil {
		t.Fatal(err)
	}
	send()
	var want []string
	for row, err := range acme.AllEvents(ctx, client.EventFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("acme:1:%d %s", row.Seq, row.ID))
	}
	if got := readTopic(ctx, t, kafka.Address(), len(want)); !slices.Equal(got, want) {
		t.Errorf("Kafka has %d rows, in its order, the ledger %d:\n%v\n%v", len(got), len(want), got, want)
	}
	if got := readStream(ctx, t, stream.URL(), len(want)); !slices.Equal(got, want) {
		t.Errorf("NATS has %d rows, in its order, the ledger %d:\n%v\n%v", len(got), len(want), got, want)
	}
	mustStop(t, s)
}

func createSink(t *testing.T, s *Server, key, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/v1/sinks", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusCreated {
		var text bytes.Buffer
		_, _ = text.ReadFrom(answer.Body)
		t.Fatalf("%s: %d %s", body, answer.StatusCode, text.String())
	}
}

// kept are messages as a receiver keeps them that remembers ids.
type kept struct {
	seen map[string]bool
	rows []string
}

func (k *kept) add(t *testing.T, id string, body []byte) {
	t.Helper()
	var row struct {
		ID  string
		Seq uint64
	}
	if err := json.Unmarshal(body, &row); err != nil || !strings.HasSuffix(id, ":"+strconv.FormatUint(row.Seq, 10)) {
		t.Fatalf("%s came with %s: %v", id, body, err)
	}
	if !k.seen[id] {
		k.seen[id] = true
		k.rows = append(k.rows, id+" "+row.ID)
	}
}

func readTopic(ctx context.Context, t *testing.T, address string, n int) []string {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics("rows"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all := kept{seen: map[string]bool{}}
	for len(all.rows) < n {
		fetches := c.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			all.add(t, string(r.Headers[0].Value), r.Value)
		}
	}
	return all.rows
}

func withStream(t *testing.T, url string, fn func(js jetstream.JetStream)) {
	t.Helper()
	c, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	js, err := jetstream.New(c)
	if err != nil {
		t.Fatal(err)
	}
	fn(js)
}

func createStream(t *testing.T, url string) {
	t.Helper()
	withStream(t, url, func(js jetstream.JetStream) {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ROWS", Subjects: []string{"rows"}})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func readStream(ctx context.Context, t *testing.T, url string, n int) []string {
	t.Helper()
	all := kept{seen: map[string]bool{}}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	withStream(t, url, func(js jetstream.JetStream) {
		stream, err := js.Stream(ctx, "ROWS")
		if err != nil {
			t.Fatal(err)
		}
		for seq := uint64(1); len(all.rows) < n; {
			m, err := stream.GetMsg(ctx, seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) { // not yet
				<-tick.C
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			all.add(t, m.Header.Get("Nats-Msg-Id"), m.Data)
			seq++
		}
	})
	return all.rows
}
