package sinks_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/service/sinks"
	"github.com/tallystick/tallystick/internal/store"
)

// readStore counts how often rows are read.
type readStore struct {
	store.Store
	reads atomic.Int64
}

func (s *readStore) View(ctx context.Context, tenantID string, fn func(store.View) error) error {
	return s.Store.View(ctx, tenantID, func(v store.View) error { return fn(&readView{v, s}) })
}

type readView struct {
	store.View
	of *readStore
}

func (v *readView) Rows(after uint64, hint store.RowHint, fn func(*ledger.Row) bool) (uint64, bool, error) {
	v.of.reads.Add(1)
	return v.View.Rows(after, hint, fn)
}

// A commit of many rows is read once for all its deliveries, as far as memory allows: a store decodes all of it each
// time.
func TestACommitIsReadOnceForManyDeliveries(t *testing.T) {
	const rows = 3000
	for _, c := range []struct {
		name  string
		size  int // of a row
		reads int64
	}{
		{"small rows", 100, 1},
		{"large rows", 8 << 10, 3}, // a thousand at a time
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &readStore{Store: openEngine(t)}
			w := newWorld(t, s, "acme")
			made := w.create("acme", func(s *sink.Sink) { s.Rows, s.Batch = sink.Events, 100 }, sinks.Start{Now: true})
			var names []string
			for i := range rows {
				names = append(names, fmt.Sprint("e", i))
			}
			w.record("acme", names...)
			r := newReceiver(func(int, *sinks.Delivery) fault { return takes })
			stop, _ := w.run(r, func(o *sinks.RunnerOptions) {
				o.Render = func(store.View) (func([]byte, *ledger.Row) []byte, error) {
					return func(b []byte, _ *ledger.Row) []byte {
						return append(b, bytes.Repeat([]byte{'x'}, c.size)...)
					}, nil
				}
			})
			r.until(t, "all rows", func() bool { return len(r.rows["acme/"+made.ID]) == rows })
			stop()
			if n := s.reads.Load(); n != c.reads || r.calls != rows/100 {
				t.Errorf("%d rows in %d deliveries were read in %d parts, want %d", rows, r.calls, n, c.reads)
			}
		})
	}
}
