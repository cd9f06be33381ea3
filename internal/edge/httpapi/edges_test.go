package httpapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/edge/httpkit"
)

// holder is an edge beside the product's own, whose one route keeps a stream open for as long as a test wants.
type holder struct{ begun, release chan struct{} }

func newHolder() *holder { return &holder{begun: make(chan struct{}), release: make(chan struct{})} }

func (h *holder) edge() httpkit.Edge {
	return httpkit.Edge{
		Prefix: "/hold",
		Problems: &httpkit.Shape{Media: "text/plain", Append: func(b []byte, r *httpkit.Refusal) []byte {
			r.Status = http.StatusTeapot
			return append(append(b, "held: "...), r.Code...)
		}},
		Routes: []httpkit.Route{{
			Method: http.MethodGet, Pattern: "/hold/{name}", Media: []string{httpkit.MediaNDJSON},
			Handle: func(x *httpkit.Exchange) error {
				return x.Stream(x.Path("name"), func(context.Context, *httpkit.Stream) error {
					h.begun <- struct{}{}
					<-h.release
					return nil
				})
			},
		}},
	}
}

// hold keeps a stream of this name open until release is called.
func (w *world) hold(name string) (release func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		a, err := w.server.Client().Get(w.server.URL + "/hold/" + url.PathEscape(name))
		if err != nil {
			w.t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, a.Body)
		_ = a.Body.Close()
	}()
	<-w.holder.begun
	return func() {
		w.holder.release <- struct{}{}
		<-done
	}
}

// Given another edge on the same listener, then it is answered in its own shape, and the product's own paths are
// answered as ever, in the express lane too.
func TestOtherEdgesAreServedBeside(t *testing.T) {
	w := ingestWorld(t)
	for _, tc := range []struct {
		method, path string
		status       int
		media, begin string
	}{
		{"GET", "/hold", http.StatusTeapot, "text/plain", "held: not_found"},
		{"GET", "/hold/a/b", http.StatusTeapot, "text/plain", "held: not_found"},
		{"PUT", "/hold/a", http.StatusTeapot, "text/plain", "held: method_not_allowed"},
		{"GET", "/holder", http.StatusNotFound, "application/problem+json", `{"type":"/problems/not_found"`},
		{"GET", "/v1/hold/a", http.StatusNotFound, "application/problem+json", `{"type":"/problems/not_found"`},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, w.server.URL+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := w.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		media := a.Header.Get("Content-Type")
		if err != nil || a.StatusCode != tc.status || media != tc.media || !bytes.HasPrefix(body, []byte(tc.begin)) {
			t.Errorf("%s %s: %d %s %s %v", tc.method, tc.path, a.StatusCode, media, body, err)
		}
	}
	if a := w.get("/v1/nothing"); !strings.Contains(a.text("detail"), "GET /openapi.yaml lists what there is") {
		t.Errorf("%s", a.body)
	}
	w.send(`{"id":"e","meter":"calls","customer":"c"}`).status(t, 200)
}
