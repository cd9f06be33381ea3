package usage_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

func (s *story) plan(d *datadriven.TestData) (string, error) {
	p := quota.Plan{Name: d.CmdArgs[0].Key}
	for line := range strings.Lines(d.Input) {
		_, args, err := datadriven.ParseLine("quota " + line)
		if err != nil {
			return "", err
		}
		q := quota.Quota{Meter: args[0].Key, Thresholds: quota.DefaultThresholds}
		for _, a := range args[1:] {
			switch a.Key {
			case "soft":
				q.Soft = true
			case "limit":
				q.Limit, err = amount.Parse(a.Vals[0])
			case "multiplier":
				q.Multiplier, err = amount.Parse(a.Vals[0])
			case "thresholds":
				q.Thresholds, err = percents(a.Vals)
			default:
				err = fmt.Errorf("no option %s", a.Key)
			}
			if err != nil {
				return "", err
			}
		}
		p.Quotas = append(p.Quotas, q)
	}
	if bad := p.Check(); bad != nil {
		return refusal(bad), nil
	}
	return "ok", s.append("plan", "updated", p.Name, quota.PlanKind.State(&p))
}

func percents(texts []string) (out []uint16, err error) {
	for _, text := range texts {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, err
		}
		out = append(out, uint16(n))
	}
	return out, nil
}

func (s *story) assign(d *datadriven.TestData) (string, error) {
	customer, dated := "", quota.Dated{From: calendar.FromTime(s.clock), Plan: argument(d, "plan")}
	if dated.Plan == "none" {
		dated.Plan = ""
	}
	if first := d.CmdArgs[0]; first.Key != "plan" {
		customer = first.Key
	}
	if from := argument(d, "from"); from != "" {
		var ok bool
		if dated.From, ok = calendar.ParseMoment(from); !ok {
			return "", fmt.Errorf("bad time %q", from)
		}
	}
	var a quota.Assignment
	err := s.view(func(v store.View) (err error) {
		a, err = store.Assignment(v, customer)
		return err
	})
	if err != nil {
		return "", err
	}
	a.Plans = a.Plans.With(dated)
	return "ok", s.append("customer", "plan_assigned", customer, quota.AssignmentKind.State(&a))
}

// used prints every tally that has something in it.
func (s *story) used() (string, error) {
	var b strings.Builder
	err := s.view(func(v store.View) error {
		meters, err := store.Meters(v, store.Page{Limit: tenant.MaxMeters})
		if err != nil {
			return err
		}
		periods, err := store.Periods(v, 0, 100)
		if err != nil {
			return err
		}
		for _, m := range meters {
			for _, p := range periods {
				t, err := v.Tally(m.Number, p.Month)
				if err != nil {
					return err
				}
				if t != (usage.Tally{}) {
					fmt.Fprintf(&b, "%s %s used=%s reported=%d\n", m.Slug, p.Month, t.Used, t.Alerted)
				}
			}
		}
		return nil
	})
	return b.String(), err
}

func (s *story) alerts() (string, error) {
	var b strings.Builder
	err := s.eachRow(func(_ store.View, r *ledger.Row) error {
		if r.Change != nil && r.Change.Type == "quota.threshold_reached" {
			fmt.Fprintf(&b, "%d %s by %s: %s\n", r.Seq, r.Change.EntityID, r.Change.Actor, r.Change.Payload)
		}
		return nil
	})
	return b.String(), err
}

// A refusal says when the fact's own month ends, and to come back then, or in an hour if that is later. A month that is
// over does not reset: only its plan may change.
func TestQuotaRefusalSaysWhenItResets(t *testing.T) {
	m := &meter.Meter{Number: 1, Slug: "calls", Aggregation: meter.Sum, Lateness: 1000 * time.Hour, Future: time.Hour}
	l := newLive([]*meter.Meter{m})
	l.limits["calls/"] = quota.Compile(&quota.Plan{Name: "pro", Quotas: []quota.Quota{{Meter: "calls"}}}).Limit("calls")
	prepare := usage.NewPreparer(usage.NewCatalog([32]byte{}, l.meters))
	now := time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC)
	for fields, want := range map[string]struct {
		resets time.Time
		wait   time.Duration
	}{
		"id=a meter=calls customer=c time=2026-11-01": {time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), time.Minute},
		"id=b meter=calls customer=c":                 {time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), time.Minute},
		"id=c meter=calls customer=c time=2026-10-31": {time.Time{}, time.Hour},
		"id=d meter=calls customer=c time=2026-12-01": {time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), time.Hour},
	} {
		events, err := parseEvents(fields)
		if err != nil {
			t.Fatal(err)
		}
		var f usage.Fact
		prepare.Prepare(&events[0], &f)
		v := usage.Judge(l, &f, 1, calendar.FromTime(now), &usage.Row{})
		if v.Status != usage.Rejected || v.Problem.Code != problem.QuotaExceeded ||
			!v.Problem.ResetsAt.Equal(want.resets) || v.Problem.RetryAfter != want.wait {
			t.Errorf("%s: %s %+v, want a reset at %s in %s", fields, v.Status, v.Problem, want.resets, want.wait)
		}
		if over := strings.Contains(v.Problem.Detail,
			"the period is over and its limit does not reset"); over != want.resets.IsZero() {
			t.Errorf("%s: the detail says %q", fields, v.Problem.Detail)
		}
	}
	for _, c := range l.counters {
		if !c.Empty() {
			t.Errorf("a refused fact left %+v", c)
		}
	}
	for _, tally := range l.tallies {
		if *tally != (usage.Tally{}) {
			t.Errorf("a refused fact left %+v", tally)
		}
	}
}

// What all customers use may be more than a number holds although each counter still has room: that fact alone is
// refused.
func TestTallyOverflowRefusesThatFactAlone(t *testing.T) {
	m := &meter.Meter{Number: 1, Slug: "calls", Aggregation: meter.Sum, Lateness: time.Hour}
	l := newLive([]*meter.Meter{m})
	november := calendar.Month(2026*12 + 10)
	brim, err := amount.Parse("99999999999999999999999998.999999999999")
	if err != nil {
		t.Fatal(err)
	}
	l.tallies[usage.CounterID{Meter: 1, Month: november}] = &usage.Tally{Used: brim}
	prepare := usage.NewPreparer(usage.NewCatalog([32]byte{}, l.meters))
	for i, c := range []struct{ fields, want string }{
		{"id=a meter=calls customer=c time=2026-11-01 quantity=2", "rejected overflow"},
		{"id=b meter=calls customer=c time=2026-10-01 quantity=2", "accepted"},
		{"id=c meter=calls customer=c time=2026-11-01 quantity=1", "accepted"},
		{"id=d corrects=c quantity=1 reason=more", "rejected overflow"},
		{"id=e corrects=c quantity=-1 reason=less", "accepted"},
	} {
		events, err := parseEvents(c.fields)
		if err != nil {
			t.Fatal(err)
		}
		var f usage.Fact
		prepare.Prepare(&events[0], &f)
		row := &usage.Row{}
		v := usage.Judge(l, &f, uint64(i+1), november.End(), row)
		got := v.Status.String()
		if v.Problem != nil {
			got += " " + refusal(v.Problem)
		} else {
			l.keep(v.Seq, row)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.fields, got, c.want)
		}
	}
	if used := l.tallies[usage.CounterID{Meter: 1, Month: november}].Used; used != brim {
		t.Errorf("%s is used in the end, want %s", used, brim)
	}
}
