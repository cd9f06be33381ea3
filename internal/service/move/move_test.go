package move_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/move"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// filled is a store with the operator and two tenants, each with several sections.
func filled(t *testing.T) *naive.Store {
	t.Helper()
	s := naive.New(naive.Options{Now: storetest.NewClock().Now})
	for _, id := range []string{tenant.Operator, "acme", "globex"} {
		if err := storetest.Create(s, id, storetest.NewMeter("calls", meter.Sum)); err != nil {
			t.Fatal(err)
		}
		for _, event := range []string{"a", "b", "c"} {
			record(t, s, id, event)
		}
	}
	return s
}

func record(t *testing.T, s store.Store, id, event string) {
	t.Helper()
	events := []usage.Event{storetest.Fact(event, "calls", "c1", storetest.Ago(0), "2")}
	if _, err := s.Record(context.Background(), store.Batch{Tenant: id, Events: events}); err != nil {
		t.Fatal(err)
	}
}

// breaking refuses an import after some.
type breaking struct {
	store.Store
	left int
}

var errBroken = errors.New("the network is gone")

func (b *breaking) Import(ctx context.Context, id string, s ledger.Section) error {
	if b.left--; b.left < 0 {
		return errBroken
	}
	return b.Store.Import(ctx, id, s)
}

// Given a move that breaks off after any number of sections, when it is run again, then the target is the source.
func TestAMoveThatBrokeOffGoesOn(t *testing.T) {
	for left := range 13 {
		from := filled(t)
		fs := vfs.NewMem()
		o := engine.Options{Dir: "data", FS: fs, Now: storetest.NewClock().Now, SegmentBytes: 1 << 20}
		to, err := engine.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		first, err := move.Run(context.Background(), from, &breaking{to, left}, move.Options{})
		if (err != nil) != errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
		if to, err = engine.Open(o); err != nil {
			t.Fatal(err)
		}
		done, total := uint64(0), uint64(0)
		second, err := move.Run(context.Background(), from, to, move.Options{Progress: func(d, of uint64) { done, total = d, of }})
		if err != nil {
			t.Fatal(err)
		}
		if done != total || done != second.Rows || first.Moved+second.Moved != second.Rows || second.Tenants != 3 {
			t.Errorf("after %d sections: %+v, then %+v, progress %d of %d", left, first, second, done, total)
		}
		storetest.Compare(t, from, to, "acme", "globex", tenant.Operator)
		if report, err := verify.Run(context.Background(), to, verify.Options{}); err != nil || !report.OK() {
			t.Errorf("%+v, %v", report, err)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnotherLedgerAtTheTargetIsLeftAlone(t *testing.T) {
	for name, disturb := range map[string]func(to *naive.Store){
		"a tenant of its own":    func(to *naive.Store) { _ = storetest.Create(to, "stranger") },
		"the same tenant, anew":  func(to *naive.Store) { _ = storetest.Create(to, "acme", storetest.NewMeter("other", meter.Sum)) },
		"more rows than we have": func(to *naive.Store) { mustMove(t, filled(t), to); record(t, to, "acme", "z") },
		"other rows, as many": func(to *naive.Store) {
			_ = storetest.Create(to, "acme", storetest.NewMeter("calls", meter.Max))
			record(t, to, "acme", "a")
		},
	} {
		from, to := filled(t), naive.New(naive.Options{Now: storetest.NewClock().Now})
		disturb(to)
		if _, err := move.Run(context.Background(), from, to, move.Options{}); !errors.Is(err, move.ErrDiffers) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func mustMove(t *testing.T, from, to store.Store) {
	t.Helper()
	if _, err := move.Run(context.Background(), from, to, move.Options{}); err != nil {
		t.Fatal(err)
	}
}
