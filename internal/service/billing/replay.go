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
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// ReplayRequest asks what a month would have come to under other settings. Empty filters take every meter and customer.
// Settings that are nil are those in force for the counter: of the last replay that was applied to it and not reverted,
// else the meter's own. So a replay never proposes to undo another by not naming its settings; naming the meter's own
// does.
type ReplayRequest struct {
	Tenant          string
	Month           calendar.Month
	Meter, Customer string
	Lateness        *time.Duration
	Late            *meter.Late
	Aggregation     *meter.Aggregation
	// Apply adds each difference to its total as an adjustment with the reason. Once: what earlier replays added is
	// part of what a replay starts from, so doing it again adds nothing, and a replay by yet other settings takes the
	// place of the last.
	Apply  bool
	Reason string
	Actor  string
	// Progress is called with how many counters were replayed, of how many. Default: none.
	Progress func(done, total uint64)
}

// Difference is what the settings change of one counter. Totals include what people adjusted; before is as of the
// settings in force.
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

var errChanged = problem.New(problem.Busy,
	"the counter and its rows do not agree, or change faster than they can be replayed: "+
		"try again when less arrives, else run `tallystick verify`")

// Replay computes every counter of the month anew from the ledger's rows and calls fn for those that come out
// different. Nothing is changed unless asked. Errors: NotFound (tenant, meter), Invalid (settings, reason),
// TenantClosed, and those of fn.
func (s *Service) Replay(ctx context.Context, q ReplayRequest, fn func(Difference) error) error {
	r := &replaying{s: s, q: q, earlier: map[usage.CounterID]*applied{}}
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
		if d.TotalBefore != d.TotalAfter || d.OnTimeBefore != d.OnTimeAfter || d.Refused != d.refusedBefore {
			if err := fn(d.Difference); err != nil {
				return err
			}
		}
		if q.Progress != nil {
			q.Progress(uint64(i+1), uint64(len(places)))
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

func (q *ReplayRequest) settings() settings { return settings{q.Lateness, q.Late, q.Aggregation} }

type replaying struct {
	s      *Service
	q      ReplayRequest
	meters map[string]store.Meter
	// earlier is what replays have done, by the rows up to seen.
	earlier map[usage.CounterID]*applied
	seen    uint64
}

// mayApply refuses at once what could not be applied in the end.
func (r *replaying) mayApply(v store.View) error {
	if !r.q.Apply {
		return nil
	}
	t, err := store.Tenant(v)
	if err != nil {
		return err
	}
	if t.Closed {
		return problem.New(problem.TenantClosed, "tenant %s is closed: it stays readable and takes no changes", t.ID)
	}
	return t.CheckKeptHere()
}

// plan lists the counters and settles the meters before anything is computed.
func (r *replaying) plan(ctx context.Context) (places []store.CounterPlace, err error) {
	err = r.s.ledgers.View(ctx, r.q.Tenant, func(v store.View) error {
		if err := r.mayApply(v); err != nil {
			return err
		}
		if err := r.settle(v); err != nil {
			return err
		}
		if r.q.Meter != "" && r.meters[r.q.Meter].Number == 0 {
			return problem.New(problem.NotFound, "no meter %q", r.q.Meter)
		}
		return v.Counters(store.CounterPlace{Month: r.q.Month, Meter: r.q.Meter},
			func(p store.CounterPlace, _ *usage.Counter) bool {
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

// settle reads the meters and looks whether the settings can be theirs.
func (r *replaying) settle(v store.View) error {
	all, err := allMeters(v)
	if err != nil {
		return err
	}
	r.meters = map[string]store.Meter{}
	for _, m := range all {
		wanted := r.q.Meter == "" || r.q.Meter == m.Slug
		if a := r.q.Aggregation; a != nil && *a == meter.Unique && m.UniqueProperty == "" && wanted {
			return problem.At("aggregation", "meter %s names no unique_property, so its rows hold no members", m.Slug)
		}
		r.meters[m.Slug] = m
	}
	return nil
}

// computed is a difference and what it was computed from.
type computed struct {
	Difference
	before        usage.Counter
	refusedBefore int // facts that would not have been kept by the settings in force
}

// counter replays one counter and, if asked, applies the difference.
func (r *replaying) counter(ctx context.Context, p store.CounterPlace) (computed, error) {
	for range applyTries {
		d, err := r.compute(ctx, p)
		if errors.Is(err, errChanged) {
			continue
		}
		if err != nil || !r.q.Apply || d.Amount().IsZero() {
			return d, err
		}
		d.Adjustment, err = r.apply(ctx, p, &d)
		if !errors.Is(err, errChanged) {
			return d, err
		}
	}
	return computed{}, errChanged
}

func (r *replaying) id(p store.CounterPlace) usage.CounterID {
	return usage.CounterID{Meter: r.meters[p.Meter].Number, Customer: p.Customer, Month: p.Month}
}

func (r *replaying) compute(ctx context.Context, p store.CounterPlace) (d computed, err error) {
	d.Meter, d.Customer = p.Meter, p.Customer
	err = r.s.ledgers.View(ctx, r.q.Tenant, func(v store.View) error {
		if d.before, err = v.Counter(r.id(p)); err != nil {
			return fmt.Errorf("read counter: %w", err)
		}
		if err := r.note(v); err != nil {
			return err
		}
		rows, err := arrivals(v, r.id(p))
		if err != nil {
			return err
		}
		period, err := store.Period(v, p.Month)
		if err != nil {
			return fmt.Errorf("read period: %w", err)
		}
		return r.compare(p, rows, period.Seq, &d)
	})
	return d, err
}

// compare decides the rows by the settings in force and by those asked for.
func (r *replaying) compare(p store.CounterPlace, rows []usage.Arrival, closed uint64, d *computed) error {
	own, earlier := r.meters[p.Meter].Meter, r.before(r.id(p))
	// A live counter may be ahead of the rows that were read. Whatever the settings, its rows must add up to it.
	plain := own
	plain.Late = meter.Adjust
	if all := usage.Replay(rows, &plain, closed).All; !all.Equal(d.before.All()) {
		return errChanged
	}
	d.OnTimeBefore, d.TotalBefore = d.before.OnTime.Value(own.Aggregation), d.before.Total(own.Aggregation)
	inForce, is := earlier.inForce()
	if is {
		m := inForce.on(own)
		by := usage.Replay(rows, &m, closed)
		d.OnTimeBefore, d.refusedBefore = by.OnTime.Value(m.Aggregation), by.Refused
	}
	asked := r.q.settings().over(inForce).on(own)
	after := usage.Replay(rows, &asked, closed)
	manual, _ := d.before.Manual.Sub(earlier.amount) // what people added, apart from replays
	d.Refused, d.OnTimeAfter = after.Refused, after.OnTime.Value(asked.Aggregation)
	d.TotalAfter, _ = after.All.Value(asked.Aggregation).Add(manual)
	return nil
}

// arrivals reads a counter's rows in the order they came.
func arrivals(v store.View, id usage.CounterID) ([]usage.Arrival, error) {
	var rows []usage.Arrival
	q := store.SliceQuery{Meter: id.Meter, Customer: id.Customer, From: id.Month.Start(), To: id.Month.End(),
		Wants: store.WantKeys | store.WantMembers}
	err := v.Slice(q, func(s *store.Slice) error {
		for i := range s.Seq {
			a := usage.Arrival{Seq: s.Seq[i], Time: s.Time[i], Value: s.Value[i],
				Key:    usage.Key{Space: s.Key[i].Space, Name: strings.Clone(s.Key[i].Name)},
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
func (r *replaying) apply(ctx context.Context, p store.CounterPlace, d *computed) (id string, err error) {
	counter, own := r.id(p), r.meters[p.Meter].Aggregation
	err = r.s.ledgers.Update(ctx, r.q.Tenant, func(tx store.Tx, _ tenant.Tenant) error {
		now, err := tx.Counter(counter)
		if err != nil {
			return fmt.Errorf("read counter: %w", err)
		}
		// Whether anybody adjusted since is one look at the audit log; what they did is read again outside of the
		// transaction.
		adjusted, err := tx.AuditEvents(store.AuditQuery{EntityType: usage.AdjustmentKind.Name, Limit: 1})
		if err != nil {
			return fmt.Errorf("look for adjustments: %w", err)
		}
		if !now.Equal(&d.before, own) || len(adjusted) > 0 && adjusted[0].Seq > r.seen {
			return errChanged
		}
		inForce, _ := r.before(counter).inForce()
		made, err := adjust(tx, "created", p.Meter, usage.Adjustment{Meter: counter.Meter, Customer: p.Customer,
			Month: p.Month, Amount: d.Amount(),
			Reason: r.q.Reason, Actor: r.q.Actor, Replay: r.q.settings().over(inForce).String()})
		id = made.ID
		return err
	})
	return id, err
}
