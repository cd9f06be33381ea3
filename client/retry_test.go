package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/client"
)

func TestLostAnswersAreRetriedAsTheSameEvent(t *testing.T) {
	s, url := serve(t, cut, cutMidAnswer, reply(503, "busy"), reply(200, `{"id":"a","status":"duplicate","seq":7}`,
		"Tally-Dedup", "1"))
	c := newClient(t, url, client.WithClock(&recordedClock{}))
	e := client.Event{Meter: "calls", Customer: "c"}
	a, err := c.SendEvent(context.Background(), &e)
	if err != nil {
		t.Fatal(err)
	}
	if a.Status != client.Duplicate || a.Attempts != 4 || a.Seq != 7 {
		t.Errorf("got %+v, want the server's word, duplicate, at the 4th attempt", a)
	}
	got := s.requests()
	if len(got) != 4 {
		t.Fatalf("%d requests, want 4", len(got))
	}
	for i, r := range got {
		if r.body != got[0].body {
			t.Errorf("request %d differs from the first:\n%s\n%s", i+1, r.body, got[0].body)
		}
		if key := r.header.Get("Idempotency-Key"); key != "" {
			t.Errorf("request %d carries the key %q, which would name events by index", i+1, key)
		}
	}
	if id := field(t, got[0].body, "id"); id == "" || id != e.ID {
		t.Errorf("sent id %q, caller's event has %q; want the same", id, e.ID)
	}
}

// A creation whose answer was lost may have happened: the key lets the server find out.
func TestCreationsAreRepeatedUnderOneKey(t *testing.T) {
	s, url := serve(t, cut, reply(201, `{"id":"adj_1"}`), reply(201, `{"id":"adj_2"}`))
	c := newClient(t, url, client.WithClock(&recordedClock{}))
	in := client.NewAdjustment{Meter: "m", Customer: "c", Period: "2026-11", Amount: "-2.50", Reason: "r"}
	for range 2 {
		if _, err := c.CreateAdjustment(context.Background(), in); err != nil {
			t.Fatal(err)
		}
	}
	var keys []string
	for _, r := range s.requests() {
		keys = append(keys, r.header.Get("Idempotency-Key"))
	}
	if len(keys) != 3 || keys[0] == "" || keys[0] != keys[1] || keys[1] == keys[2] {
		t.Errorf("keys %q, want one for both attempts and another for the second call", keys)
	}
}

// A second attempt would be answered without the secret: only the caller can look what became of the first.
func TestWhatIsShownOnceIsAskedOnce(t *testing.T) {
	s, url := serve(t, cut, reply(201, `{"id":"acme"}`))
	c := newClient(t, url, client.WithClock(&recordedClock{}))
	if _, err := c.CreateTenant(context.Background(), client.NewTenant{ID: "acme"}); err == nil {
		t.Fatal("a cut connection was hidden from the caller")
	}
	if got := s.requests(); len(got) != 1 || got[0].header.Get("Idempotency-Key") != "" {
		t.Errorf("%d requests, want 1 without a key", len(got))
	}
}

func TestChangesToAStatedEndAreRepeated(t *testing.T) {
	s, url := serve(t, cut, reply(200, `{"id":"2026-11","state":"closed"}`))
	c := newClient(t, url, client.WithClock(&recordedClock{}))
	if _, err := c.ClosePeriod(context.Background(), "2026-11"); err != nil {
		t.Fatal(err)
	}
	if n := len(s.requests()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

func TestWhichAnswersAreRetried(t *testing.T) {
	cases := []struct {
		name   string
		first  http.HandlerFunc
		again  bool
		atMost time.Duration
		least  time.Duration
	}{
		{"502", reply(502, ""), true, 100 * time.Millisecond, 0},
		{"503 with seconds", reply(503, "", "Retry-After", "7"), true, 7100 * time.Millisecond, 7 * time.Second},
		{"503 with a date", reply(503, "", "Retry-After", noon.Add(9*time.Second).Format(http.TimeFormat)), true,
			9100 * time.Millisecond, 9 * time.Second},
		{"503 with nonsense", reply(503, "", "Retry-After", "soon"), true, 100 * time.Millisecond, 0},
		{"503 of a ledger that was moved", reply(503, `{"code":"moved"}`, "Retry-After", "60"), false, 0, 0},
		{"504", reply(504, ""), true, 100 * time.Millisecond, 0},
		{"rate limit", reply(429, "", "Tally-Ratelimit", "1", "Retry-After", "2"), true, 2100 * time.Millisecond,
			2 * time.Second},
		{"quota", reply(429, `{"code":"quota_exceeded"}`, "Tally-Quota-Exceeded", "1", "Retry-After",
			"2"), false, 0, 0},
		{"429 of unknown kind", reply(429, ""), false, 0, 0},
		{"503 with a wait beyond patience", reply(503, "", "Retry-After", "99999999999999999"), false, 0, 0},
		{"500", reply(500, ""), false, 0, 0},
		{"409", reply(409, `{"code":"conflict"}`), false, 0, 0},
		{"422", reply(422, `{"code":"future"}`), false, 0, 0},
		{"redirect", reply(307, "", "Location", "/elsewhere"), false, 0, 0},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s, url := serve(t, tc.first, reply(200, accepted))
			clock := &recordedClock{}
			c := newClient(t, url, client.WithClock(clock))
			_, err := c.SendEvent(context.Background(), &client.Event{ID: "a", Meter: "m"})
			if !tc.again {
				var p *client.Problem
				if !errors.As(err, &p) || p.Attempts != 1 || len(s.requests()) != 1 || len(clock.sleeps()) != 0 {
					t.Fatalf("error %v after %d requests; want the Problem after 1", err, len(s.requests()))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			slept := clock.sleeps()
			if len(slept) != 1 || slept[0] < tc.least || slept[0] > tc.atMost {
				t.Errorf("slept %v, want once, from %v to %v", slept, tc.least, tc.atMost)
			}
		})
	}
}

func TestBackoffGrowsToItsBoundAndEnds(t *testing.T) {
	s, url := serve(t, reply(503, `{"code":"overloaded","detail":"later","request_id":"r1"}`))
	clock := &recordedClock{}
	c := newClient(t, url, client.WithClock(clock), client.WithRetry(client.RetryPolicy{
		MaxAttempts: 6, BaseBackoff: 10 * time.Millisecond, MaxBackoff: 45 * time.Millisecond}))
	_, err := c.Meter(context.Background(), "m")
	var p *client.Problem
	if !errors.As(err, &p) {
		t.Fatalf("error %v is no Problem", err)
	}
	want := client.Problem{Title: "Service Unavailable", Status: 503, Code: "overloaded", Detail: "later",
		RequestID: "r1", Attempts: 6}
	if diff := cmp.Diff(want, *p); diff != "" {
		t.Error(diff)
	}
	if n := len(s.requests()); n != 6 {
		t.Errorf("%d requests, want 6", n)
	}
	slept := clock.sleeps()
	bounds := []int64{10, 20, 40, 45, 45} // milliseconds
	if len(slept) != len(bounds) {
		t.Fatalf("slept %v, want %d waits", slept, len(bounds))
	}
	for i, d := range slept {
		if d < 0 || d >= time.Duration(bounds[i])*time.Millisecond {
			t.Errorf("wait %d is %v, want below %dms", i+1, d, bounds[i])
		}
	}
}

func TestCancelWhileWaitingToRetry(t *testing.T) {
	s, url := serve(t, reply(503, `{"code":"overloaded"}`))
	ctx, cancel := context.WithCancel(context.Background())
	c := newClient(t, url, client.WithClock(&recordedClock{during: cancel}))
	_, err := c.SendEvent(ctx, &client.Event{ID: "a"})
	if !errors.Is(err, context.Canceled) || client.Code(err) != "overloaded" {
		t.Errorf("error %v, want the cancellation and what was being retried", err)
	}
	if n := len(s.requests()); n != 1 {
		t.Errorf("%d requests after the cancellation, want 1", n)
	}
}

func TestCancelWhileTheServerIsSilent(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s, url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	c := newClient(t, url, client.WithClock(&recordedClock{}))
	if _, err := c.SendEvent(ctx, &client.Event{ID: "a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the cancellation", err)
	}
	if n := len(s.requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestNoWaitBeyondTheDeadline(t *testing.T) {
	_, url := serve(t, reply(503, `{"code":"overloaded"}`, "Retry-After", "30"))
	clock := &recordedClock{}
	c := newClient(t, url, client.WithClock(deadlineClock{clock}))
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if _, err := c.Meter(ctx, "m"); client.Code(err) != "overloaded" {
		t.Errorf("error %v, want the problem itself", err)
	}
	if slept := clock.sleeps(); len(slept) != 0 {
		t.Errorf("slept %v towards a deadline already out of reach", slept)
	}
}

// deadlineClock is so close to every deadline of this test that no wait fits.
type deadlineClock struct{ *recordedClock }

func (deadlineClock) Now() time.Time { return time.Now().Add(time.Hour) }

func TestAnswersThatCannotBeBelieved(t *testing.T) {
	huge := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			chunk := strings.Repeat(" ", 4096)
			for range 64 {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		}
	}
	cases := []struct {
		name string
		step http.HandlerFunc
		want error
	}{
		{"not JSON", reply(200, "<html>"), client.ErrMalformed},
		{"empty", reply(200, ""), client.ErrMalformed},
		{"two values", reply(200, accepted+accepted), client.ErrMalformed},
		{"no status", reply(200, `{}`), client.ErrMalformed},
		{"a refusal as 200", reply(200, `{"id":"a","status":"rejected"}`), client.ErrMalformed},
		{"huge", huge(200), client.ErrAnswerTooLarge},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s, url := serve(t, tc.step)
			c := newClient(t, url, client.WithClock(&recordedClock{}), client.WithMaxAnswer(64<<10))
			if _, err := c.SendEvent(context.Background(), &client.Event{ID: "a"}); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if n := len(s.requests()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
	t.Run("huge refusal", func(t *testing.T) {
		_, url := serve(t, huge(400))
		c := newClient(t, url, client.WithMaxAnswer(64<<10))
		_, err := c.SendEvent(context.Background(), &client.Event{ID: "a"})
		var p *client.Problem
		if !errors.As(err, &p) || p.Status != 400 {
			t.Errorf("error %v, want a Problem of status 400", err)
		}
	})
	t.Run("a proxy's page", func(t *testing.T) {
		_, url := serve(t, reply(403, strings.Repeat("no\xff ", 1000), "Tally-Request-Id", "r9"))
		c := newClient(t, url)
		_, err := c.Meter(context.Background(), "m")
		var p *client.Problem
		if !errors.As(err, &p) || len(p.Detail) > 512 || !strings.HasPrefix(p.Detail, "no no ") || p.RequestID != "r9" {
			t.Errorf("problem %+v, want a short clean quotation", p)
		}
	})
}
