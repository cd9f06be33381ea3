package usage_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// live is a state that trusts the rules: it keeps the counters, corrections and members that they leave, as a product's
// store does, where the naive store folds all rows anew.
type live struct {
	meters    []*meter.Meter // by number, from 1
	rows      map[uint64]*usage.Row
	keys      map[usage.Key]uint64
	counters  map[usage.CounterID]*usage.Counter
	corrected map[string]usage.Corrected
	members   map[string]bool
	closed    map[calendar.Month]bool
	tallies   map[usage.CounterID]*usage.Tally // the customer is left out
	limits    map[string]*quota.Limit          // by slug and customer
	days      map[dayID]*usage.Day
	floor     calendar.Micros
	broken    error // what reading fails with
}

func newLive(meters []*meter.Meter) *live {
	return &live{
		meters: meters, rows: map[uint64]*usage.Row{}, keys: map[usage.Key]uint64{},
		counters:  map[usage.CounterID]*usage.Counter{},
		corrected: map[string]usage.Corrected{}, members: map[string]bool{}, closed: map[calendar.Month]bool{},
		tallies: map[usage.CounterID]*usage.Tally{}, limits: map[string]*quota.Limit{},
		days: map[dayID]*usage.Day{},
	}
}

type dayID struct {
	meter uint32
	day   calendar.Day
}

var _ usage.State = (*live)(nil)

func (l *live) Known(f *usage.Fact) (usage.Known, error) {
	seq := l.keys[f.Key]
	if seq == 0 {
		return usage.Known{}, l.broken
	}
	return usage.Known{Seq: seq, Other: !f.Bucket && !usage.SameContent(f.Event, &l.rows[seq].Event, f.Key.Space)},
		l.broken
}

func (l *live) Floor() calendar.Micros { return l.floor }

func (l *live) TenantClosed() bool { return false }

func (l *live) Closed(m calendar.Month) bool { return l.closed[m] }

func (l *live) Catalog() *usage.Catalog { return usage.NewCatalog([32]byte{}, l.meters) }

func (l *live) Counter(id usage.CounterID) (*usage.Counter, error) {
	if l.counters[id] == nil {
		l.counters[id] = &usage.Counter{}
	}
	return l.counters[id], l.broken
}

func (l *live) Target(k usage.Key) (*usage.Row, error) { return l.rows[l.keys[k]], l.broken }

func (l *live) Corrected(target usage.Key, number uint32) (usage.Corrected, error) {
	return l.corrected[fmt.Sprint(target, number)], l.broken
}

func (l *live) Correct(target usage.Key, number uint32, c usage.Corrected) {
	l.corrected[fmt.Sprint(target, number)] = c
}

func (l *live) Member(id usage.CounterID, generation uint32, member string) (onTime, seen bool, err error) {
	onTime, seen = l.members[fmt.Sprint(id, generation, member)]
	return onTime, seen, l.broken
}

func (l *live) AddMember(id usage.CounterID, generation uint32, member string, onTime bool) {
	l.members[fmt.Sprint(id, generation, member)] = onTime
}

func (l *live) Slice(id usage.CounterID, below uint64, fn func(*usage.Row, *usage.Outcome)) error {
	for seq, r := range l.rows {
		if seq >= below || r.Customer != id.Customer || r.Month() != id.Month {
			continue
		}
		for i := range r.Outcomes {
			if r.Outcomes[i].Meter == id.Meter {
				fn(r, &r.Outcomes[i])
			}
		}
	}
	return l.broken
}

func (l *live) Limit(slug, customer string, _ calendar.Micros) (*quota.Limit, error) {
	return l.limits[slug+"/"+customer], l.broken
}

func (l *live) Tally(number uint32, m calendar.Month) (*usage.Tally, error) {
	id := usage.CounterID{Meter: number, Month: m}
	if l.tallies[id] == nil {
		l.tallies[id] = &usage.Tally{}
	}
	return l.tallies[id], l.broken
}

func (l *live) Day(number uint32, d calendar.Day) (*usage.Day, error) {
	id := dayID{number, d}
	if l.days[id] == nil {
		l.days[id] = &usage.Day{}
	}
	return l.days[id], l.broken
}

func (l *live) keep(seq uint64, r *usage.Row) { l.rows[seq], l.keys[r.Key] = r, seq }

// A counter that would overflow refuses that fact alone: the others of its customer, and it in other counters, are
// kept.
func TestOverflowRefusesThatFactAlone(t *testing.T) {
	m := &meter.Meter{Number: 1, Slug: "calls", Aggregation: meter.Sum, EventType: "job", Lateness: time.Hour}
	other := &meter.Meter{Number: 2, Slug: "other", Aggregation: meter.Sum, EventType: "job", Lateness: time.Hour}
	full, err := amount.Parse("99999999999999999999999998.999999999999")
	if err != nil {
		t.Fatal(err)
	}
	l := newLive([]*meter.Meter{m, other})
	november := calendar.Month(2026*12 + 10)
	brim := &usage.Counter{Started: true, Watermark: november.Start(), OnTime: usage.Fold{Count: 1, Sum: full}}
	l.counters[usage.CounterID{Meter: 1, Customer: "c1", Month: november}] = brim
	prepare := usage.NewPreparer(usage.NewCatalog([32]byte{}, l.meters))
	for i, c := range []struct {
		fields string
		want   string
	}{
		{"id=a meter=calls customer=c1 time=2026-11-01 quantity=1.000000000001", "rejected overflow"},
		{"id=b type=job customer=c1 time=2026-11-01 quantity=2", "rejected overflow"},
		{"id=c meter=other customer=c1 time=2026-11-01 quantity=2", "accepted"},
		{"id=d meter=calls customer=c2 time=2026-11-01 quantity=2", "accepted"},
		{"id=e meter=calls customer=c1 time=2026-10-01 quantity=2", "accepted"},
		{"id=f meter=calls customer=c1 time=2026-11-01 quantity=1", "accepted"},
		{"id=g meter=calls customer=c1 time=2026-11-01 quantity=0.000000000001", "rejected overflow"},
		{"id=h meter=calls customer=c1 time=2026-11-01 quantity=0", "accepted"},
		{"id=k corrects=f quantity=1 reason=mistake", "rejected overflow"},
		{"id=l corrects=f quantity=-1 reason=mistake", "accepted"},
		{"id=m meter=calls customer=c1 time=2026-11-01 quantity=0.5", "accepted"},
	} {
		events, err := parseEvents(c.fields)
		if err != nil {
			t.Fatal(err)
		}
		var f usage.Fact
		prepare.Prepare(&events[0], &f)
		row, seq := &usage.Row{}, uint64(i+1)
		v := usage.Judge(l, &f, seq, november.End(), row)
		got := v.Status.String()
		if v.Problem != nil {
			got += " " + refusal(v.Problem)
		} else {
			l.keep(seq, row)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.fields, got, c.want)
		}
	}
	if c := l.counters[usage.CounterID{Meter: 2, Customer: "c1", Month: november}]; c.OnTime.Count != 1 {
		t.Errorf("a meter counted a fact that another refused: %+v", c)
	}
}

// A person's adjustment must fit beside whatever the aggregation may say.
func TestCanAdjust(t *testing.T) {
	brim, err := amount.Parse("99999999999999999999999999.999999999999")
	if err != nil {
		t.Fatal(err)
	}
	one := amount.One
	for _, c := range []struct {
		name string
		give usage.Counter
		add  amount.Amount
		want bool
	}{
		{"empty", usage.Counter{}, brim, true},
		{"full sum", usage.Counter{OnTime: usage.Fold{Sum: brim}}, one, false},
		{"full sum, less", usage.Counter{OnTime: usage.Fold{Sum: brim}}, one.Neg(), true},
		{"full sum of late rows", usage.Counter{Late: &usage.Fold{Sum: brim}}, one, false},
		{"full of adjustments", usage.Counter{Manual: brim}, one, false},
		{"full of negative ones", usage.Counter{Manual: brim.Neg()}, one.Neg(), false},
		{"full maximum", usage.Counter{OnTime: usage.Fold{Max: brim}}, one, false},
	} {
		if got := c.give.CanAdjust(c.add); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A fact that cannot be decided because history cannot be read is refused as unavailable, keeps the cause and leaves no
// trace.
func TestUnreadableHistoryRefusesTheFact(t *testing.T) {
	m := &meter.Meter{Number: 1, Slug: "calls", Aggregation: meter.Sum, Lateness: time.Hour}
	l := newLive([]*meter.Meter{m})
	l.broken = errors.New("bad sector")
	prepare := usage.NewPreparer(usage.NewCatalog([32]byte{}, l.meters))
	for _, fields := range []string{"id=a meter=calls customer=c1 time=2026-11-01",
		"id=k corrects=a quantity=1 reason=mistake"} {
		events, err := parseEvents(fields)
		if err != nil {
			t.Fatal(err)
		}
		var f usage.Fact
		prepare.Prepare(&events[0], &f)
		v := usage.Judge(l, &f, 1, calendar.MaxMicros, &usage.Row{})
		if v.Status != usage.Rejected || !problem.Is(v.Problem, problem.Unavailable) ||
			!errors.Is(v.Problem, l.broken) || v.Seq != 0 {
			t.Errorf("%s: %+v", fields, v)
		}
	}
	for id, c := range l.counters {
		if !c.Empty() {
			t.Errorf("%+v was changed: %+v", id, c)
		}
	}
}
