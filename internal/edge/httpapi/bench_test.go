package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/store"
)

// agreeable is a store that knows one key and accepts everything: what is measured is the edge alone.
type agreeable struct {
	store.Store
	key tenant.APIKey
}

func (s *agreeable) Access(context.Context, string, string) (store.Access, error) {
	return store.Access{Tenant: tenant.Tenant{ID: "acme"}, Key: s.key}, nil
}

func (s *agreeable) Record(_ context.Context, b store.Batch) ([]usage.Verdict, error) {
	out := make([]usage.Verdict, len(b.Events))
	for i := range out {
		out[i] = usage.Verdict{Key: usage.Key{Space: usage.ClientSpace, Name: b.Events[i].ID}, Seq: uint64(i + 1),
			Status: usage.Accepted}
	}
	return out, nil
}

// drained is a ResponseWriter that keeps nothing but the status.
type drained struct {
	header http.Header
	status int
}

func (w *drained) Header() http.Header         { return w.header }
func (w *drained) Write(b []byte) (int, error) { return len(b), nil }
func (w *drained) WriteHeader(status int)      { w.status = status }

type benchBody struct{ *bytes.Reader }

func (benchBody) Close() error { return nil }

func BenchmarkPostEvents(b *testing.B) {
	token := tenant.Token("acme.00", [32]byte{1})
	st := &agreeable{key: tenant.APIKey{ID: "acme.00", Scopes: tenant.Ingest, Hash: tenant.HashToken(token)}}
	s := New(Options{Store: st, Gate: gate.New(st, gate.Options{Now: time.Now})})
	for _, n := range []int{1, 1000} {
		var body bytes.Buffer
		separator := byte('[')
		for i := range n {
			if n > 1 {
				body.WriteByte(separator)
			}
			fmt.Fprintf(&body, `{"id":"req_%08d","meter":"api_calls","customer":"cus_%d",`+
				`"time":"2026-11-15T02:10:00Z","quantity":"3"}`, i, i%50)
			separator = ','
		}
		if n > 1 {
			body.WriteByte(']')
		}
		b.Run(fmt.Sprintf("%d", n), func(b *testing.B) {
			reader := benchBody{bytes.NewReader(body.Bytes())}
			r := httptest.NewRequest("POST", "/v1/events", reader)
			r.ContentLength = int64(body.Len())
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			w := &drained{header: http.Header{}}
			b.ReportAllocs()
			b.SetBytes(int64(body.Len()))
			for b.Loop() {
				reader.Reset(body.Bytes())
				r.Body = reader
				clear(w.header)
				s.ServeHTTP(w, r)
				if w.status != http.StatusOK {
					b.Fatal(w.status)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
