package billing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// ReplayRequest asks what a month would have come to under other settings. Empty filters take every meter and customer; nil
// settings are the meter's own.
type ReplayRequest struct {
	Tenant          string
	Month           calendar.Month
	Meter, Customer string
	Lateness        *time.Duration
	Late            *meter.Late
	Aggregation     *meter.Aggregation
	// Apply adds each difference to its total as an adjustment with the reason. Once: what earlier replays added is part of what
	// a replay starts from, so doing it again adds nothing, and a replay by yet other settings takes the place of the last.
	Apply  bool
	Reason string
	Actor  string
	// Progress is told how many counters were replayed. Default: nobody is.
	Progress func(done uint64)
}

// Difference is what the settings change of one counter. Totals include what people adjusted.
type Difference struct {
	Meter, Customer           string
	OnTimeBefore, OnTimeAfter amount.Amount
	TotalBefore, TotalAfter   amount.Amount
	Refused                   int    // facts that would not have been kept
	Adjustment                string // the id of the one that was made, if any
}

// Amount is what the total would change by.
func (d *Difference) Amount() amount.Amount {
	a, _ := d.TotalAfter.Sub(d.TotalBefore) // both are totals of one counter, far from the bounds
	return a
}

// applyTries bounds how often a counter is replayed anew because it changed meanwhile.
const applyTries = 10

var errChanged = errors.New("the counter and its rows do not agree, or change faster than they can be replayed: try again when less arrives, else run `tallystick verify`")

// Replay computes every counter of the month anew from the ledger's rows and calls fn for those that come out different. Nothing
// is changed unless asked. Errors: NotFound (tenant, meter), Invalid (settings, reason), TenantClosed, and those of fn.
func (s *Service) Replay(ctx context.Context, q ReplayRequest, fn func(Difference) error) error {
	r := &replaying{s: s, q: q, earlier: map[usage.CounterID]amount.Amount{}}
	if p := q.check(); p != nil {
		return p
	}
	places, err := r.plan(ctx)
	if err != nil {
		return err
	}
	for i, p := range places {
		d, err := r.counter(ctx, p)
		if err != nil {
			return fmt.Errorf("replay %s of %q: %w", p.Meter, p.Customer, err)
		}
		if d.TotalBefore != d.TotalAfter || d.OnTimeBefore != d.OnTimeAfter || d.Refused > 0 {
			if err := fn(d); err != nil {
				return err
			}
		}
		if q.Progress != nil {
			q.Progress(uint64(i + 1))
		}
	}
	return nil
}

func (q *ReplayRequest) check() *problem.Error {
	switch {
	case q.Lateness != nil && (*q.Lateness < 0 || *q.Lateness > meter.MaxLateness):
		return problem.At("lateness", "must lie between 0 and %s", meter.MaxLateness)
	case q.Apply && strings.TrimSpace(q.Reason) == "":
		return problem.At("reason", "required to apply: it stands with every adjustment")
	}
	if q.Apply {
		return (&usage.Adjustment{Customer: "any", Amount: amount.One, Reason: q.Reason, Actor: q.Actor}).Check()
	}
	return nil
}

// settings names what was asked for, in the adjustments that come of it.
func (q *ReplayRequest) settings() string {
	said := []string{}
	if q.Aggregation != nil {
		said = append(said, "aggregation="+q.Aggregation.String())
	}
	if q.Late != nil {
		said = append(said, "late="+q.Late.String())
	}
	if q.Lateness != nil {
		said = append(said, "lateness="+q.Lateness.String())
	}
	if len(said) == 0 {
		return "own settings"
	}
	return strings.Join(said, " ")
}

type replaying struct {
	s      *Service
	q      ReplayRequest
	meters map[string]store.Meter // as they are to be replayed
	own    map[string]meter.Aggregation
	// earlier is what replays have added, by the rows up to seen.
	earlier map[usage.CounterID]amount.Amount
	seen    uint64
}

// plan lists the counters and settles the meters before anything is computed.
func (r *replaying) plan(ctx context.Context) (places []store.CounterPlace, err error) {
	err = r.s.view(ctx, r.q.Tenant, func(v store.View) error {
		if err := r.settle(v); err != nil {
			return err
		}
		if r.q.Meter != "" && r.meters[r.q.Meter].Number == 0 {
			return problem.New(problem.NotFound, "no meter %q", r.q.Meter)
		}
		return v.Counters(store.CounterPlace{Month: r.q.Month, Meter: r.q.Meter}, func(p store.CounterPlace, _ *usage.Counter) bool {
			if p.Month != r.q.Month || r.q.Meter != "" && p.Meter != r.q.Meter {
				return false
			}
			if r.q.Customer == "" || p.Customer == r.q.Customer {
				places = append(places, p)
			}
			return true
		})
	})
	return places, err
}

// settle gives each meter the settings asked for.
func (r *replaying) settle(v store.View) error {
	all, err := allMeters(v)
	if err != nil {
		return err
	}
	r.meters, r.own = map[string]store.Meter{}, map[string]meter.Aggregation{}
	for _, m := range all {
		r.own[m.Slug] = m.Aggregation
		if r.q.Lateness != nil {
			m.Lateness = *r.q.Lateness
		}
		if r.q.Late != nil {
			m.Late = *r.q.Late
		}
		if a := r.q.Aggregation; a != nil {
			wanted := r.q.Meter == "" || r.q.Meter == m.Slug
			if *a == meter.Unique && m.UniqueProperty == "" && wanted {
				return problem.At("aggregation", "meter %s names no unique_property, so its rows hold no members", m.Slug)
			}
			m.Aggregation = *a
		}
		r.meters[m.Slug] = m
	}
	return nil
}

// counter replays one counter and, if asked, applies the difference.
func (r *replaying) counter(ctx context.Context, p store.CounterPlace) (Difference, error) {
	for range applyTries {
		d, before, err := r.compute(ctx, p)
		if errors.Is(err, errChanged) {
			continue
		}
		if err != nil || !r.q.Apply || d.Amount().IsZero() {
			return d, err
		}
		d.Adjustment, err = r.apply(ctx, p, &d, &before)
		if !errors.Is(err, errChanged) {
			return d, err
		}
	}
	return Difference{}, errChanged
}

func (r *replaying) id(p store.CounterPlace) usage.CounterID {
	return usage.CounterID{Meter: r.meters[p.Meter].Number, Customer: p.Customer, Month: p.Month}
}

func (r *replaying) compute(ctx context.Context, p store.CounterPlace) (d Difference, before usage.Counter, err error) {
	m := r.meters[p.Meter]
	d = Difference{Meter: p.Meter, Customer: p.Customer}
	err = r.s.view(ctx, r.q.Tenant, func(v store.View) error {
		if before, err = v.Counter(r.id(p)); err != nil {
			return fmt.Errorf("read counter: %w", err)
		}
		if err := r.note(v); err != nil {
			return err
		}
		rows, err := arrivals(v, r.id(p))
		if err != nil {
			return err
		}
		period, err := v.Period(p.Month)
		if err != nil {
			return fmt.Errorf("read period: %w", err)
		}
		// A live counter may be ahead of the rows that were read. Whatever the settings, its rows must add up to it.
		plain := m.Meter
		plain.Late = meter.Adjust
		if all := usage.Replay(rows, &plain, period.Seq).All; !all.Equal(before.All()) {
			return errChanged
		}
		after := usage.Replay(rows, &m.Meter, period.Seq)
		manual, _ := before.Manual.Sub(r.earlier[r.id(p)]) // what people added, apart from replays
		d.Refused = after.Refused
		d.OnTimeBefore, d.OnTimeAfter = before.OnTime.Value(r.own[p.Meter]), after.OnTime.Value(m.Aggregation)
		d.TotalBefore = before.Total(r.own[p.Meter])
		d.TotalAfter, _ = after.All.Value(m.Aggregation).Add(manual)
		return nil
	})
	return d, before, err
}

// note reads what replays have added since it was called last.
func (r *replaying) note(v store.View) error {
	for end := false; !end; {
		var bad error
		last, ended, err := v.Rows(r.seen, store.RowHint{Changes: true}, func(row *ledger.Row) bool {
			if row.Change == nil || row.Change.EntityType != adjustmentEntity {
				return true
			}
			state, err := ledger.DecodeState(row)
			if err != nil {
				bad = err
				return false
			}
			if a := state.Adjustment; a != nil && a.Replay != "" {
				id := usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}
				r.earlier[id], _ = r.earlier[id].Add(a.Amount)
			}
			return true
		})
		if err != nil || bad != nil {
			return fmt.Errorf("read earlier replays: %w", errors.Join(err, bad))
		}
		r.seen, end = last, ended
	}
	return nil
}

// arrivals reads a counter's rows in the order they came.
func arrivals(v store.View, id usage.CounterID) ([]usage.Arrival, error) {
	var rows []usage.Arrival
	q := store.SliceQuery{Meter: id.Meter, Customer: id.Customer, From: id.Month.Start(), To: id.Month.End(), Wants: store.WantKeys | store.WantMembers}
	err := v.Slice(q, func(s *store.Slice) error {
		for i := range s.Seq {
			a := usage.Arrival{Seq: s.Seq[i], Time: s.Time[i], Value: s.Value[i], Key: usage.Key{Space: s.Key[i].Space, Name: strings.Clone(s.Key[i].Name)},
				Member: strings.Clone(s.Member[i])}
			if s.Corrects != nil {
				a.Corrects = strings.Clone(s.Corrects[i])
			}
			rows = append(rows, a)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	slices.SortFunc(rows, func(a, b usage.Arrival) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	return rows, nil
}

// apply adds the difference unless the counter is no longer what it was computed from.
func (r *replaying) apply(ctx context.Context, p store.CounterPlace, d *Difference, before *usage.Counter) (id string, err error) {
	own := r.own[p.Meter]
	err = r.s.update(ctx, r.q.Tenant, func(tx store.Tx) error {
		now, err := tx.Counter(r.id(p))
		if err != nil {
			return fmt.Errorf("read counter: %w", err)
		}
		earlier := r.earlier[r.id(p)]
		if err := r.note(tx); err != nil {
			return err
		}
		if !now.Equal(before, own) || r.earlier[r.id(p)] != earlier {
			return errChanged
		}
		made, err := adjust(tx, "created", p.Meter, usage.Adjustment{Meter: r.id(p).Meter, Customer: p.Customer, Month: p.Month, Amount: d.Amount(),
			Reason: r.q.Reason, Actor: r.q.Actor, Replay: r.q.settings()})
		id = made.ID
		return err
	})
	return id, err
}
