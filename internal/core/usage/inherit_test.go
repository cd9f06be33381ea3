package usage_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// A store may read thousands of rows to return one, all in one piece of memory. A correction that shared the strings of
// its target would keep all of it for as long as its own row is kept.
func TestACorrectionSharesNoMemoryWithItsTarget(t *testing.T) {
	seen := &meter.Meter{Number: 1, Slug: "seen", Aggregation: meter.Unique, UniqueProperty: "user", EventType: "visit",
		Lateness: time.Hour}
	l := newLive([]*meter.Meter{seen})
	prepare := usage.NewPreparer(l.Catalog())
	send := func(seq uint64, fields string) *usage.Row {
		t.Helper()
		events, err := parseEvents(fields)
		if err != nil {
			t.Fatal(err)
		}
		var f usage.Fact
		prepare.Prepare(&events[0], &f)
		row := &usage.Row{}
		if v := usage.Judge(l, &f, seq, calendar.MaxMicros, row); !v.Kept() {
			t.Fatalf("%s: %v", fields, v.Problem)
		}
		l.keep(seq, row)
		return row
	}
	target := send(1, `id=a type=visit customer=c1 resource=r time=2026-11-01 p.user="ann"`)
	fix := send(2, "id=k corrects=a quantity=1 reason=mistake")
	for name, of := range map[string]func(r *usage.Row) string{
		"customer": func(r *usage.Row) string { return r.Customer },
		"resource": func(r *usage.Row) string { return r.Resource },
		"member":   func(r *usage.Row) string { return r.Outcomes[0].Member },
	} {
		have, want := of(fix), of(target)
		if have != want || have == "" {
			t.Errorf("the %s is %q, its target's is %q", name, have, want)
		}
		if unsafe.StringData(have) == unsafe.StringData(want) {
			t.Errorf("the %s is in the target's memory", name)
		}
	}
}
