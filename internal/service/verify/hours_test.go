package verify_test

import (
	"context"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// bentHours is a store whose hours are shown in another way than it keeps them. It keeps those of all customers; those
// of each it is given here are of one that used everything.
type bentHours struct {
	store.Store
	bend func(*store.Hour) bool // false: it is left out
}

func (s *bentHours) View(ctx context.Context, id string, fn func(store.View) error) error {
	return s.Store.View(ctx, id, func(v store.View) error { return fn(&bentHoursView{v, s}) })
}

type bentHoursView struct {
	store.View
	s *bentHours
}

func (v *bentHoursView) Hours(q store.HourQuery, fn func(*store.Hour) error) (uint64, bool, error) {
	customer := ""
	if q.EachCustomer {
		customer, q.EachCustomer = "c", false
	}
	return v.View.Hours(q, func(h *store.Hour) error {
		own := *h.Hour
		shown := store.Hour{Customer: customer, Begin: h.Begin, Hour: &own}
		if !v.s.bend(&shown) {
			return nil
		}
		return fn(&shown)
	})
}

// Given hours that are not what the rows give, by one unit or by an hour, when the ledger is verified, then each is
// named; one that is lost says nothing.
func TestHoursAreVerified(t *testing.T) {
	clock := storetest.NewClock()
	e, err := engine.Open(engine.Options{Dir: "data", FS: vfs.NewMem(), Now: clock.Now, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := storetest.Create(e, acme, storetest.NewMeter("calls", meter.Sum), storetest.NewMeter("peak", meter.Max),
		storetest.NewMeter("level", meter.Last)); err != nil {
		t.Fatal(err)
	}
	var events []usage.Event
	for i, slug := range []string{"calls", "peak", "level", "calls", "peak", "level"} {
		events = append(events, storetest.Fact(string(rune('a'+i)), slug, "c", storetest.Ago(0), "5"))
	}
	if _, err := e.Record(t.Context(), store.Batch{Tenant: acme, Events: events}); err != nil {
		t.Fatal(err)
	}
	// Meters are numbered in the order in which they came.
	ofAll := func(h *store.Hour) bool { return h.Customer == "" }
	for what, c := range map[string]struct {
		bend func(*store.Hour) bool
		want string // "": nothing differs
	}{
		"right": {func(*store.Hour) bool { return true }, ""},
		"a fact too many": {func(h *store.Hour) bool {
			if ofAll(h) {
				h.Count++
			}
			return true
		}, "by all customers"},
		"a unit too many, of a customer": {func(h *store.Hour) bool {
			if !ofAll(h) {
				h.Value, _ = h.Value.Add(amount.One)
			}
			return true
		}, `by "c"`},
		"another number of facts at the maximum": {func(h *store.Hour) bool {
			if h.At > 0 {
				h.At--
			}
			return true
		}, "facts at the max"},
		"an hour is missing": {func(h *store.Hour) bool { return h.At == 0 || !ofAll(h) },
			"hour of peak by all customers"},
		"a customer's hour is missing": {func(h *store.Hour) bool { return h.At == 0 || ofAll(h) },
			"hour of peak by a customer"},
		"an hour too many": {func(h *store.Hour) bool {
			h.Begin = h.Begin.Add(1000)
			return true
		}, "hour of"},
		"all are lost": {func(h *store.Hour) bool {
			*h.Hour = usage.Hour{Lost: true}
			return true
		}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			r, err := verify.Run(t.Context(), &bentHours{e, c.bend}, verify.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, d := range r.Differences {
				found = append(found, d.String())
			}
			all := strings.Join(found, "\n")
			if c.want == "" && all != "" || !strings.Contains(all, c.want) {
				t.Errorf("%s\nwant %q", all, c.want)
			}
		})
	}
}
