package httpapi

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/service/verify"
)

// verifying is what a test has a verification do.
type verifying func(ctx context.Context, tenantID string, progress func(stage string, done,
	total uint64)) (verify.Report, error)

func (v verifying) in(t *testing.T, change ...func(*Options)) *world {
	return newWorld(t, append(change, func(o *Options) { o.Verify = v })...)
}

// open asks for a verification and returns when its head has come.
func (w *world) open(ctx context.Context, url, tenantID string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/verification", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+rootKey)
	if tenantID != "" {
		r.Header.Set("Tally-Tenant", tenantID)
	}
	a, err := w.server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	if a.StatusCode != http.StatusOK {
		w.t.Fatalf("answered %s", a.Status)
	}
	return a
}

// Given bounds on reading and answering a request, when a streamed answer takes many times as long, then it is not cut
// off.
func TestAStreamOutlivesTheBoundsOfARequest(t *testing.T) {
	const bound = 20 * time.Millisecond
	long := verifying(func(ctx context.Context, _ string,
		progress func(string, uint64, uint64)) (verify.Report, error) {
		progress("recounting", 1, 2)
		select {
		case <-time.After(15 * bound):
			return verify.Report{Rows: 7}, nil
		case <-ctx.Done():
			return verify.Report{}, ctx.Err()
		}
	})
	w := long.in(t) // a line has its default bound
	hasty := httptest.NewUnstartedServer(w.api)
	hasty.Config.ReadTimeout, hasty.Config.WriteTimeout = bound, bound
	hasty.Start()
	defer hasty.Close()
	a := w.open(t.Context(), hasty.URL, "")
	in := bufio.NewReader(a.Body)
	for _, want := range []string{`{"progress":{"done":1,"stage":"recounting","total":2}}`,
		`{"result":{"ok":true,"tenants":0,"operator":false,"rows":7,`} {
		line, err := in.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, want) {
			t.Errorf("%q, %v, want %s", line, err, want)
		}
	}
	if err := a.Body.Close(); err != nil {
		t.Error(err)
	}
}

// Given a streamed answer under way, when the caller goes away or the server is about to stop, then the work ends.
func TestAStreamEndsWithItsCallerAndItsServer(t *testing.T) {
	ended := make(chan error, 1)
	forever := verifying(func(ctx context.Context, _ string, progress func(string, uint64, uint64)) (verify.Report,
		error) {
		progress("recounting", 1, 2)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return verify.Report{}, ctx.Err()
	})
	w := forever.in(t)
	ctx, leave := context.WithCancel(t.Context())
	gone := w.open(ctx, w.server.URL, "")
	leave()
	<-ended
	_ = gone.Body.Close()

	a := w.open(t.Context(), w.server.URL, "acme") // the first may not have left its place yet
	w.api.Drain()
	if cause := <-ended; !problem.Is(cause, problem.Unavailable) {
		t.Errorf("ended because of %v", cause)
	}
	in := bufio.NewScanner(a.Body)
	var last string
	for in.Scan() {
		last = in.Text()
	}
	if !strings.HasPrefix(last, `{"error":{"type":"/problems/unavailable"`) ||
		!strings.Contains(last, "shutting down") {
		t.Errorf("the last line is %s", last)
	}
	_ = a.Body.Close()
}

// What goes wrong before the first line has its status; after it, it is the last line. HEAD does nothing.
func TestAStreamThatFails(t *testing.T) {
	var fails error
	sayFirst := false
	w := verifying(func(_ context.Context, _ string, progress func(string, uint64, uint64)) (verify.Report, error) {
		if sayFirst {
			progress("recounting", 1, 2)
		}
		return verify.Report{}, fails
	}).in(t)
	fails = errors.New("secret words of a disk")
	c := call{method: "GET", path: "/v1/verification", key: "operator"}
	w.do(c).refused(t, 500, "internal")
	sayFirst = true
	a := w.do(c).status(t, 200)
	lines := strings.Split(strings.TrimSpace(string(a.body)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], `"code":"internal"`) || strings.Contains(string(a.body),
		"secret words") {
		t.Errorf("%s", a.body)
	}
	head := c
	head.method = "HEAD"
	fails = nil
	if a := w.do(head).status(t, 200); a.header.Get("Content-Type") != httpkit.MediaNDJSON || len(a.body) > 0 {
		t.Errorf("%v %s", a.header, a.body)
	}
}

// A replay answers as it goes, so that no answer can be kept for a key.
func TestAReplayTakesNoRequestKey(t *testing.T) {
	w := newWorld(t)
	c := call{method: "POST", path: "/v1/periods/2026-11/replay", key: "billing", body: "{}"}
	w.do(c.with("Idempotency-Key", "k")).refused(t, 400, "malformed")
	w.do(c).status(t, 200)
}
