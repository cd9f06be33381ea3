package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
)

// events answers with a stream that then ends, or is cut off.
func events(text string) http.HandlerFunc {
	return reply(200, text, "Content-Type", "text/event-stream")
}

// streamed lists the rows that come before there is an error, or enough of them.
func streamed(ctx context.Context, c *client.Client, f client.StreamFilter, enough int) (rows string, err error) {
	n := 0
	for row, err := range c.Stream(ctx, f) {
		if err != nil {
			return rows, err
		}
		rows += string(row.Data) + row.Type + " "
		if n++; n == enough {
			break
		}
	}
	return rows, nil
}

const closingDown = "event: closing\ndata: {\"status\":503,\"code\":\"unavailable\",\"detail\":\"shutting down\"}\n\n"

// A stream that ends, is cut off or is refused for now goes on behind the last place that was named.
func TestStreamResumes(t *testing.T) {
	s, url := serve(t,
		reply(503, `{"code":"unavailable"}`, "Retry-After", "2"),
		events("retry: 1500\nid: 4\n\n"), // ended before the first row
		events("id: 5\nevent: usage.recorded\ndata: 5\n\nid: 6\nevent: usage.recorded\ndata: 6\n\nid: 7\ndata: cut o"),
		cut,
		reply(429, `{"code":"rate_limited"}`, "Tally-Ratelimit", "1"),
		reply(502, `a proxy's page`), reply(502, ``), reply(502, ``), reply(502, ``), reply(502, ``),
		events("id: 9\n\nevent: dropped\ndata: {\"status\":503,\"code\":\"timeout\",\"detail\":\"slow\"}\n\n"),
		events(closingDown),
		events("id: 10\nevent: meter.created\ndata: 10\n\n"))
	clock := &recordedClock{}
	c := newClient(t, url, client.WithClock(clock), client.WithTenant("acme"))
	rows, err := streamed(t.Context(), c, client.StreamFilter{FromSeq: 5, Rows: []string{"event", "change"}, Meter: "m",
		Customer: "c"}, 3)
	if err != nil || rows != "5usage.recorded 6usage.recorded 10meter.created " {
		t.Errorf("%q, %v", rows, err)
	}
	var places []string
	for _, r := range s.requests() {
		if r.uri != "/v1/stream?customer=c&from_seq=5&meter=m&rows=event%2Cchange" ||
			r.header.Get("Tally-Tenant") != "acme" || !strings.HasPrefix(r.header.Get("Accept"), "text/event-stream") {
			t.Errorf("%s %v", r.uri, r.header)
		}
		places = append(places, r.header.Get("Last-Event-ID"))
	}
	if got := strings.Join(places, ","); got != ",,4,6,6,6,6,6,6,6,6,9,9" {
		t.Errorf("resumed from %s", got)
	}
	for i, d := range clock.sleeps() {
		if least := 1500 * time.Millisecond; i > 0 && d < least || i == 0 && d < 2*time.Second {
			t.Errorf("wait %d was %s", i, d)
		}
	}
}

// What another connection does not help against ends the stream, with the reason.
func TestStreamStops(t *testing.T) {
	closing := func(data string) http.HandlerFunc { return events("event: closing\ndata: " + data + "\n\n") }
	page := reply(200, "{}", "Content-Type", "application/json")
	type steps = []http.HandlerFunc
	for name, c := range map[string]struct {
		steps
		code string
		is   error
	}{
		"refused":     {steps{reply(403, `{"code":"forbidden"}`)}, "forbidden", nil},
		"archived":    {steps{reply(410, `{"code":"archived"}`)}, "archived", nil},
		"revoked":     {steps{closing(`{"status":401,"code":"unauthorized"}`)}, "unauthorized", nil},
		"not there":   {steps{cut}, "", io.EOF},
		"no stream":   {steps{page}, "", client.ErrMalformed},
		"no row":      {steps{events("id: x\n\n")}, "", client.ErrMalformed},
		"no JSON":     {steps{events("id: 1\ndata: {\n\n")}, "", client.ErrMalformed},
		"no problem":  {steps{closing("x")}, "", client.ErrMalformed},
		"twice":       {steps{events("id: 1\ndata: 1\n\nid: 1\ndata: 1\n\n")}, "", client.ErrMalformed},
		"backward":    {steps{events("id: 3\n\nid: 2\n\n")}, "", client.ErrMalformed},
		"again later": {steps{events("id: 3\n\n"), events("id: 3\ndata: 3\n\n")}, "", client.ErrMalformed},
		"too large":   {steps{events("data: " + strings.Repeat("x", 2000))}, "", client.ErrAnswerTooLarge},
	} {
		_, url := serve(t, c.steps...)
		cl := newClient(t, url, client.WithClock(&recordedClock{}), client.WithMaxAnswer(1000))
		_, err := streamed(t.Context(), cl, client.StreamFilter{}, -1)
		if err == nil || client.Code(err) != c.code || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A connection on which nothing comes is given up; the end of the context ends the stream.
func TestStreamGivesUpASilentConnection(t *testing.T) {
	hang := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: 4\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	s, url := serve(t, hang, events("id: 5\ndata: 5\n\n"))
	c := newClient(t, url, client.WithClock(&recordedClock{}))
	rows, err := streamed(t.Context(), c, client.StreamFilter{Silence: 20 * time.Millisecond}, 1)
	if got := s.requests(); err != nil || rows != "5 " || got[len(got)-1].header.Get("Last-Event-ID") != "4" {
		t.Errorf("%q, %v, %d requests", rows, err, len(got))
	}
	ctx, stop := context.WithCancel(t.Context())
	_, url = serve(t, func(w http.ResponseWriter, r *http.Request) {
		stop()
		hang(w, r)
	})
	if _, err := streamed(ctx, newClient(t, url), client.StreamFilter{}, -1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
