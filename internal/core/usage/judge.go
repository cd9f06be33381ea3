package usage

import (
	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
)

// Known is what a tenant's ledger holds under a key.
type Known struct {
	Seq   uint64 // zero: nothing
	Other bool   // with other content
}

// Corrected is what corrections have done to one fact in one meter.
type Corrected struct {
	Times, TimesOnTime int
	All, OnTime        amount.Amount
}

// State is one tenant's history as the rules see it. A store implements it; each method may read, and fails only when
// reading fails. Nothing is changed by a method that returned an error.
type State interface {
	// Known looks the fact's key up, comparing contents unless the fact's key has a bucket.
	Known(f *Fact) (Known, error)
	// Floor is the time below which no fact is taken any more; zero: there is no horizon.
	Floor() calendar.Micros
	// TenantClosed reports whether the tenant is closed: what it has stays known, and it takes nothing new.
	TenantClosed() bool
	// Closed reports whether the period is closed.
	Closed(m calendar.Month) bool
	// Catalog holds the meters; rows name only meters that exist.
	Catalog() *Catalog
	// Counter returns the live counter, new if there is none. The rules change it in place.
	Counter(id CounterID) (*Counter, error)
	// Target returns the row kept under the key, or nil.
	Target(k Key) (*Row, error)
	// Corrected returns what was corrected so far, and Correct replaces it.
	Corrected(target Key, meter uint32) (Corrected, error)
	Correct(target Key, meter uint32, c Corrected)
	// Member reports whether a generation of the counter's members has the member from an on-time row, and from any.
	Member(id CounterID, generation uint32, member string) (onTime, seen bool, err error)
	AddMember(id CounterID, generation uint32, member string, onTime bool)
	// Slice calls fn for every row below seq that the counter folded, in any order.
	Slice(id CounterID, below uint64, fn func(*Row, *Outcome)) error
	// Limit returns what the plan that is in force at a moment allows a customer of a meter, that of the tenant itself
	// when customer is empty; nil: all.
	Limit(slug, customer string, now calendar.Micros) (*quota.Limit, error)
	// Tally returns the live tally of a meter that adds up, new if there is none. The rules change it in place.
	Tally(meter uint32, m calendar.Month) (*Tally, error)
	// Day returns the live hours of a meter that rolls up, over all customers, new if there are none. The rules change
	// them in place, and decide nothing by them. Nil: whoever folds does not keep them.
	Day(meter uint32, d calendar.Day) (*Day, error)
}

// Judge decides one fact: duplicate or conflict, late or on time, kept or refused. If it is kept, row is filled with
// what the ledger shall hold under seq and the state has changed; else nothing has. The order of the checks is fixed
// (P6).
func Judge(st State, f *Fact, seq uint64, now calendar.Micros, row *Row) Verdict {
	p := f.Refusal
	if p == nil {
		p = checkFuture(f, now)
	}
	if p == nil {
		p = checkHorizon(f, st.Floor())
	}
	if p != nil && p.Code == problem.Forbidden {
		return refused(f, p) // before anything is looked up: who may not do this learns nothing (P6)
	}
	if p != nil && f.Key.Name == "" {
		return refused(f, closedOr(st, p))
	}
	known, err := st.Known(f)
	if err != nil {
		return refused(f, unreadable(err))
	}
	// What is in the ledger is a duplicate, also if the meters have changed since so that it would be refused today
	// (P1).
	if known.Seq != 0 && (p == nil || !known.Other) {
		return repeated(f, known)
	}
	p = closedOr(st, p)
	switch {
	case p != nil:
	case f.Event.Corrects != "":
		p = keepCorrection(st, f, seq, now, row)
	default:
		p = keepFact(st, f, now, row)
	}
	if p != nil {
		return refused(f, p)
	}
	return Verdict{Key: f.Key, Seq: seq, Status: row.Status(), Overage: row.Over()}
}

// closedOr is why a fact is refused that is not in the ledger: a closed tenant takes none, whatever else is wrong with
// it.
func closedOr(st State, p *problem.Error) *problem.Error {
	if st.TenantClosed() {
		return problem.New(problem.TenantClosed, "the tenant is closed: it stays readable and takes no new events")
	}
	return p
}

func refused(f *Fact, p *problem.Error) Verdict {
	return Verdict{Key: f.Key, Status: Rejected, Problem: p}
}

func repeated(f *Fact, known Known) Verdict {
	v := Verdict{Key: f.Key, Seq: known.Seq, Status: Duplicate}
	if known.Other {
		v.Status = Conflict
		v.Problem = problem.New(problem.Conflict,
			"%s is already recorded with other content as seq %d; nothing was changed", quoted(f.Key.ID()), known.Seq).
			Discreetly("this id is already recorded with other content; nothing was changed")
	}
	return v
}

// unreadable refuses a fact that cannot be decided because history could not be read. Its neighbors are not harmed.
func unreadable(err error) *problem.Error {
	return problem.Wrap(problem.Unavailable, err,
		"the ledger rows that this event depends on cannot be read now; it was not recorded")
}

func checkFuture(f *Fact, now calendar.Micros) *problem.Error {
	if !f.Event.Has(GivenTime) || f.Event.Time <= now {
		return nil
	}
	feeds := f.Feeds()
	for i := range feeds {
		if m := feeds[i].Meter; f.Event.Time > now.Add(m.Future) {
			return problem.New(problem.Future, "time %s is more than %s ahead of the server's %s", f.Event.Time,
				m.Future, now)
		}
	}
	return nil
}

// touch is one counter that a fact is about to change, with all that had to be read for it.
type touch struct {
	counter          *Counter
	closed           bool
	seenOnTime, seen bool
	tally            *Tally        // nil for a meter that does not add up
	used             amount.Amount // of the tally, with the fact
	day              *Day          // nil when hours are not kept
}

func keepFact(st State, f *Fact, now calendar.Micros, row *Row) *problem.Error {
	row.Event, row.Key, row.Outcomes = *f.Event, f.Key, row.Outcomes[:0]
	row.Unrounded = ""
	if !row.Has(GivenTime) {
		row.Time = now
	}
	month := row.Month()
	feeds := f.Feeds()
	var few [4]touch
	touches := few[:0]
	for i := range feeds {
		o := Outcome{Meter: feeds[i].Meter.Number, Value: feeds[i].Value, Member: feeds[i].Member}
		t, p := reach(st, feeds[i].Meter, &o, row, month, now)
		if p != nil {
			return p
		}
		touches = append(touches, t)
		row.Outcomes = append(row.Outcomes, o)
	}
	for i := range touches {
		applyFact(st, feeds[i].Meter, &row.Outcomes[i], row, touches[i])
	}
	return nil
}

// reach reads what deciding one meter's outcome needs, and decides it.
func reach(st State, m *meter.Meter, o *Outcome, row *Row, month calendar.Month, now calendar.Micros) (touch,
	*problem.Error) {
	id := CounterID{m.Number, row.Customer, month}
	c, err := st.Counter(id)
	if err != nil {
		return touch{}, unreadable(err)
	}
	t := touch{counter: c, closed: st.Closed(month)}
	switch {
	case t.closed:
		o.Why = PeriodClosed
	case c.isLate(row.Time, m):
		o.Why = TooLate
	}
	if o.Why != OnTime && m.Late == meter.Reject {
		return t, lateProblem(o.Why, row, m, c)
	}
	if AddsUp(m.Aggregation) {
		if p := t.ration(st, m, o, id, adds(m.Aggregation, o), now); p != nil {
			return t, p
		}
	}
	if !c.fits(o.Value) {
		return t, counterFull(m, month)
	}
	if t.day, err = dayOf(st, m, row.Time); err != nil {
		return t, unreadable(err)
	}
	if o.Member == "" {
		return t, nil
	}
	if t.seenOnTime, t.seen, err = st.Member(id, c.Generation, o.Member); err != nil {
		return t, unreadable(err)
	}
	return t, nil
}

func lateProblem(w Why, row *Row, m *meter.Meter, c *Counter) *problem.Error {
	p := problem.New(problem.Late, "time %s is more than %s before %s, the latest seen for this counter, and meter "+
		"%s refuses late events",
		row.Time, m.Lateness, c.Watermark, m.Slug)
	if w == PeriodClosed {
		p = problem.New(problem.Late, "period %s is closed and meter %s refuses late events", row.Month(), m.Slug)
	}
	return p.Discreetly("the event came too late, and its meter refuses late events")
}

func counterFull(m *meter.Meter, month calendar.Month) *problem.Error {
	return problem.New(problem.Overflow, "the counter of meter %s for this customer in %s cannot hold more than 10^26",
		m.Slug, month).Discreetly(doesNotFit)
}

// doesNotFit is all that a caller who may not read totals learns of one that is full.
const doesNotFit = "the quantity does not fit what is counted already"

// applyFact folds a decided outcome. It also sets the amount of an adjusted outcome, which a replay finds to be the
// same.
func applyFact(st State, m *meter.Meter, o *Outcome, row *Row, t touch) {
	t.counter.seal(m.Aggregation, t.closed)
	if t.tally != nil {
		t.tally.Used = t.used
	}
	if t.day != nil {
		t.day.Add(m.Aggregation, o.Value, row.Time, row.Key)
	}
	if o.Why == OnTime {
		t.counter.add(o, row.Time, row.Key, t.seenOnTime, t.seen)
	} else {
		before := t.counter.Total(m.Aggregation)
		t.counter.add(o, row.Time, row.Key, t.seenOnTime, t.seen)
		o.Amount, _ = t.counter.Total(m.Aggregation).Sub(before)
	}
	if o.Member != "" && (!t.seen || o.Why == OnTime && !t.seenOnTime) {
		st.AddMember(CounterID{m.Number, row.Customer, row.Month()}, t.counter.Generation, o.Member, o.Why == OnTime)
	}
}

// Apply folds a row that was decided before: recovery, rebuild and verification. It decides nothing.
func Apply(st State, row *Row, seq uint64) error {
	for i := range row.Outcomes {
		o := row.Outcomes[i] // a copy: the ledger's row is not touched
		m := st.Catalog().Number(o.Meter)
		id := CounterID{o.Meter, row.Customer, row.Month()}
		c, err := st.Counter(id)
		if err != nil {
			return err
		}
		if row.IsCorrection() {
			if err := applyCorrection(st, c, m, &o, row, seq); err != nil {
				return err
			}
			continue
		}
		t := touch{counter: c, closed: st.Closed(id.Month)}
		if t.day, err = dayOf(st, m, row.Time); err != nil {
			return err
		}
		if AddsUp(m.Aggregation) {
			if t.tally, err = st.Tally(id.Meter, id.Month); err != nil {
				return err
			}
			t.used, _ = t.tally.Used.Add(adds(m.Aggregation, &o)) // it fitted when it was decided
		}
		if o.Member != "" {
			if t.seenOnTime, t.seen, err = st.Member(id, c.Generation, o.Member); err != nil {
				return err
			}
		}
		applyFact(st, m, &o, row, t)
	}
	return nil
}
