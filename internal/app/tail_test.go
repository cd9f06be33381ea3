package app

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/pgtest"
)

// balancer passes requests on to the server that runs now.
type balancer struct {
	*httptest.Server
	to atomic.Pointer[url.URL]
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	b := &balancer{}
	b.Server = httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(b.to.Load()) }})
	t.Cleanup(b.Close)
	return b
}

func (b *balancer) turnTo(t *testing.T, s *Server) {
	t.Helper()
	to, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	b.to.Store(to)
}

// Given a tail, when the server is restarted again and again, then it prints every row once, in order.
func TestTailGoesOnOverRestarts(t *testing.T) {
	const starts, each = 3, 20
	for _, store := range []string{embedded, "postgres"} {
		t.Run(store, func(t *testing.T) {
			leaves(t)
			settings := testSettings(t)
			if store != embedded {
				url, err := pgtest.Private(t).Create("")
				if err != nil {
					t.Fatal(err)
				}
				settings.Store = url
			}
			front := newBalancer(t)
			s := mustStart(t, settings)
			front.turnTo(t, s)
			_, key := newAcme(t, s, "calls")
			t.Setenv(keyVariable, key)
			printed := make(chan string, 1)
			go func() {
				var out bytes.Buffer
				code := Run(context.Background(), []string{"tail", "--url", front.URL, "--from-seq", "1", "--rows",
					"event", "--count", fmt.Sprint(starts * each)}, &out, &out)
				printed <- fmt.Sprintf("%sexit %d\n", out.String(), code)
			}()
			want := ""
			for start := range starts {
				if start > 0 {
					mustStop(t, s)
					s = mustStart(t, settings)
					front.turnTo(t, s)
				}
				c := connect(t, s, key)
				for i := range each {
					id := fmt.Sprintf("e%d", start*each+i)
					want += fmt.Sprintf("  usage.recorded    %s  accepted  calls  c  2\n", id)
					e := client.Event{ID: id, Meter: "calls", Customer: "c", Quantity: "2"}
					if _, err := c.SendEvent(t.Context(), &e); err != nil {
						t.Fatal(err)
					}
				}
				c.CloseIdleConnections()
			}
			got := <-printed
			mustStop(t, s)
			got = regexp.MustCompile(`(?m)^\d+ +\S+Z`).ReplaceAllString(got, "")
			if got != want+"exit 0\n" {
				t.Errorf("printed\n%s\nnot\n%s", got, want)
			}
		})
	}
}

// SIGINT is how a tail ends: exit 0. What the server refuses is exit 1 with its words, and a key without a tenant wrong
// use.
func TestTailEnds(t *testing.T) {
	leaves(t)
	s := mustStart(t, testSettings(t))
	defer mustStop(t, s)
	acme, key := newAcme(t, s, "calls")
	t.Setenv(keyVariable, key)
	ctx, interrupt := context.WithCancel(t.Context())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- Run(ctx, []string{"tail", "--url", s.URL(), "--from-seq", "1", "--json"}, in, in)
		_ = in.Close()
	}()
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil || !strings.HasPrefix(first, `{"seq":1,"type":"tenant.created","at":"`) {
		t.Errorf("%q, %v", first, err)
	}
	interrupt()
	rest, err := io.ReadAll(lines)
	if got := <-code; got != exitOK || err != nil || strings.Contains(string(rest), "tallystick:") {
		t.Errorf("exit %d, %v: %s", got, err, rest)
	}

	made, err := acme.CreateAPIKey(t.Context(), client.NewAPIKey{Scopes: []string{"ingest"}})
	if err != nil {
		t.Fatal(err)
	}
	tail := []string{"tail", "--url", s.URL()}
	for _, c := range []struct {
		key  string
		code int
		args []string
		want string
	}{
		{made.Secret, exitFailed, nil, "forbidden: this API key lacks the scope read"},
		{"tk_nobody", exitFailed, nil, "unauthorized: "},
		{key, exitFailed, []string{"--meter", "nothing"}, "not_found: "},
		{key, exitFailed, []string{"--from-seq", "1000"}, "malformed: query parameter from_seq"},
		{testRootKey, exitUsage, nil, "name the tenant with --tenant"},
		{testRootKey, exitOK, []string{"--tenant", "acme", "--from-seq", "1", "--count", "1"}, "tenant.created"},
	} {
		t.Setenv(keyVariable, c.key)
		if out := run(t, c.code, append(tail, c.args...)...); !strings.Contains(out, c.want) {
			t.Errorf("%v: %s", c.args, out)
		}
	}
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	if out := run(t, exitFailed, "tail", "--url", page.URL); !strings.Contains(out, "is --url right?") {
		t.Error(out)
	}
}

// A line says what matters most of a row, and nothing that a client chose steers the terminal.
func TestLinesOfATail(t *testing.T) {
	for data, want := range map[string]string{
		`"id":"e1","status":"overage","event_type":"llm","customer":"c","resource":"gpt","quantity":"3"`://
		`e1  overage  llm  c  gpt  3`,
		`"id":"E1","account":"A1","entry_type":"debit","amount":"5","balance":"-5"`: `E1  A1  debit  5  balance -5`,
		`"entity_type":"meter","entity_id":"calls","actor":"key_1"`:                 `meter  calls  by key_1`,
		`"id":"\u001b[2J","customer":"a\nb"`:                                        `"\x1b[2J"  "a\nb"`,
	} {
		data = `{"at":"2026-11-15T02:10:00.5Z",` + data + `}`
		want = "7      2026-11-15T02:10:00Z  t                 " + want
		got, err := tailLine(nil, &client.StreamedRow{Seq: 7, Type: "t", Data: []byte(data)})
		if err != nil || string(got) != want {
			t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
		}
	}
}
