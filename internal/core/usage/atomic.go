package usage

import (
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// Rehearse judges an atomic batch without changing the state: each fact as if those before it had been kept. It reports
// whether any is refused. Then nothing of the batch may be recorded, and verdicts has the reason of each refusal; facts
// with nothing wrong are Withheld, unless the ledger has them already. Else the store judges the facts again, on the
// state itself, and keeps them: the verdicts of the rehearsal are of no use then, because alerts between the rows move
// their numbers.
//
// Fact returns the fact of an index; it is called in order. Seq is the number that the first row would have. Errors:
// Unavailable (what a fact depends on cannot be read now).
//
// Rejected: judging once and taking back what was changed. Each store would need an inverse of everything that keeping
// a row does, which only refused batches would ever run.
func Rehearse(st State, fact func(i int) *Fact, seq uint64, now calendar.Micros, verdicts []Verdict) (refused bool,
	err error) {
	r := rehearsal{State: st, keys: map[Key]int{}, counters: map[CounterID]*Counter{}, tallies: map[tallyID]*Tally{},
		corrected: map[correctedID]Corrected{}, members: map[memberID]bool{}, first: seq}
	for i := range verdicts {
		v := r.judge(fact(i), now)
		if v.Problem != nil && v.Problem.Code == problem.Unavailable {
			return false, v.Problem
		}
		refused = refused || v.Refused()
		verdicts[i] = v
	}
	if refused {
		r.withhold(verdicts)
	}
	return refused, nil
}

// rehearsal is the state with the rows of a batch that may never be kept. What the rules change is a copy.
type rehearsal struct {
	State
	first     uint64
	rows      []*Row
	keys      map[Key]int // of rows
	counters  map[CounterID]*Counter
	tallies   map[tallyID]*Tally
	corrected map[correctedID]Corrected
	members   map[memberID]bool // → by an on-time row
}

type (
	tallyID struct {
		meter uint32
		month calendar.Month
	}
	correctedID struct {
		target Key
		meter  uint32
	}
	memberID struct {
		counter    CounterID
		generation uint32
		member     string
	}
)

func (r *rehearsal) judge(f *Fact, now calendar.Micros) Verdict {
	row := &Row{}
	v := Judge(r, f, r.first+uint64(len(r.rows)), now, row)
	switch {
	case v.Kept():
		r.keys[row.Key] = len(r.rows)
		r.rows = append(r.rows, row)
	case v.Status == Conflict && v.Seq >= r.first:
		v.Seq = 0
		v.Problem = problem.New(problem.Conflict, "another event of this batch has the id %s with other content",
			quoted(f.Key.ID()))
	}
	return v
}

// withhold takes back what the rehearsal said of rows that will not be there.
func (r *rehearsal) withhold(verdicts []Verdict) {
	for i := range verdicts {
		if v := &verdicts[i]; v.Kept() || v.Status == Duplicate && v.Seq >= r.first {
			*v = Verdict{Key: v.Key, Status: Withheld}
		}
	}
}

func (r *rehearsal) Known(f *Fact) (Known, error) {
	i, ok := r.keys[f.Key]
	if !ok {
		return r.State.Known(f)
	}
	same := f.Bucket || SameContent(f.Event, &r.rows[i].Event, f.Key.Space)
	return Known{Seq: r.first + uint64(i), Other: !same}, nil
}

func (r *rehearsal) Counter(id CounterID) (*Counter, error) {
	if c := r.counters[id]; c != nil {
		return c, nil
	}
	c, err := r.State.Counter(id)
	if err != nil {
		return nil, err
	}
	own := c.Clone()
	r.counters[id] = &own
	return &own, nil
}

func (r *rehearsal) Tally(meter uint32, m calendar.Month) (*Tally, error) {
	id := tallyID{meter, m}
	if t := r.tallies[id]; t != nil {
		return t, nil
	}
	t, err := r.State.Tally(meter, m)
	if err != nil {
		return nil, err
	}
	own := *t
	r.tallies[id] = &own
	return &own, nil
}

// Day is none: nothing is decided by the hours of a day.
func (r *rehearsal) Day(uint32, calendar.Day) (*Day, error) { return nil, nil }

func (r *rehearsal) Target(k Key) (*Row, error) {
	if i, ok := r.keys[k]; ok {
		return r.rows[i], nil
	}
	return r.State.Target(k)
}

func (r *rehearsal) Corrected(target Key, meter uint32) (Corrected, error) {
	if c, ok := r.corrected[correctedID{target, meter}]; ok {
		return c, nil
	}
	if _, ok := r.keys[target]; ok {
		return Corrected{}, nil
	}
	return r.State.Corrected(target, meter)
}

func (r *rehearsal) Correct(target Key, meter uint32, c Corrected) {
	r.corrected[correctedID{target, meter}] = c
}

func (r *rehearsal) Member(id CounterID, generation uint32, member string) (onTime, seen bool, err error) {
	if onTime, ok := r.members[memberID{id, generation, member}]; ok {
		return onTime, true, nil
	}
	return r.State.Member(id, generation, member)
}

func (r *rehearsal) AddMember(id CounterID, generation uint32, member string, onTime bool) {
	r.members[memberID{id, generation, member}] = onTime
}

// Slice shows the rows of the ledger, then those of the batch.
func (r *rehearsal) Slice(id CounterID, below uint64, fn func(*Row, *Outcome)) error {
	if err := r.State.Slice(id, min(below, r.first), fn); err != nil {
		return err
	}
	for i, row := range r.rows {
		if r.first+uint64(i) >= below || row.Customer != id.Customer || row.Month() != id.Month {
			continue
		}
		for j := range row.Outcomes {
			if row.Outcomes[j].Meter == id.Meter {
				fn(row, &row.Outcomes[j])
			}
		}
	}
	return nil
}
