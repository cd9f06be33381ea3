package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// PutPlan appends a plan as it is from then on.
func PutPlan(tx store.Tx, p quota.Plan) error {
	_, err := tx.Append(change("plan", "put", p.Name, quota.PlanKind.State(&p)))
	return err
}

// Assign appends that a plan is in force from now on for a customer, or for the tenant itself when customer is empty.
func Assign(tx store.Tx, customer, plan string) error {
	return AssignFrom(tx, customer, plan, tx.Now())
}

// AssignFrom is Assign from another moment on.
func AssignFrom(tx store.Tx, customer, plan string, from calendar.Micros) error {
	a, err := store.Assignment(tx, customer)
	if err != nil {
		return err
	}
	a.Plans = a.Plans.With(quota.Dated{From: from, Plan: plan})
	_, err = tx.Append(change("customer", "assign", customer, quota.AssignmentKind.State(&a)))
	return err
}

// Hard is a quota that refuses what crosses it, Soft one that does so at a multiple of it.
func Hard(slug, limit string) quota.Quota {
	return quota.Quota{Meter: slug, Limit: Amount(limit), Thresholds: quota.DefaultThresholds}
}

func Soft(slug, limit, multiplier string) quota.Quota {
	q := Hard(slug, limit)
	q.Soft, q.Multiplier = true, Amount(multiplier)
	return q
}

func (w *world) plan(id, name string, quotas ...quota.Quota) {
	w.Helper()
	w.update(id, func(tx store.Tx) error {
		return PutPlan(tx, quota.Plan{Name: name, Quotas: quotas, CreatedAt: tx.Now(), UpdatedAt: tx.Now()})
	})
}

func (w *world) assign(id, customer, plan string) {
	w.Helper()
	w.update(id, func(tx store.Tx) error { return Assign(tx, customer, plan) })
}

// used checks what all customers used in the month of Start.
func (w *world) used(id, slug, want string) {
	w.Helper()
	number := w.meter(id, slug).Number
	w.view(id, func(v store.View) {
		if t, err := v.Tally(number, Month); err != nil || t.Used != Amount(want) {
			w.Errorf("%s of %s is used of %s, %v, want %s", t.Used, id, slug, err, want)
		}
	})
}

// alerts checks the thresholds that were reported, as "meter:month:customer percent", in order.
func (w *world) alerts(id string, want ...string) {
	w.Helper()
	var got []string
	for _, r := range w.rows(id, 0) {
		if a := stateOf(w, &quota.AlertKind, &r); a != nil {
			got = append(got, fmt.Sprintf("%s %d", r.Change.EntityID, a.Threshold))
		}
	}
	if !slices.Equal(got, want) {
		w.Errorf("alerts %q, want %q", got, want)
	}
}

// Quotas: what plans allow holds to the last digit, whoever asks.
var quotaCases = []Case{
	{"a hard limit admits exactly what it says, and a refusal leaves nothing behind", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum), NewMeter("hits", meter.Count))
		w.plan(acme, "pro", Hard("calls", "10"), Hard("hits", "1"))
		w.assign(acme, "", "pro")
		w.says(acme, "accepted rejected:quota_exceeded accepted rejected:quota_exceeded accepted "+
			"rejected:quota_exceeded",
			Fact("a", "calls", "c", Ago(0), "9"), Fact("b", "calls", "d", Ago(0), "1.000000000001"),
			Fact("c", "calls", "d", Ago(0), "1"),
			Fact("d", "calls", "c", Ago(0), "0.000000000001"), Fact("e", "hits", "c", Ago(0), "1"),
			Fact("f", "hits", "d", Ago(0), "1"))
		before := w.head(acme)
		w.again()
		w.says(acme, "rejected:quota_exceeded duplicate", Fact("b", "calls", "d", Ago(0), "1.000000000001"),
			Fact("a", "calls", "c", Ago(0), "9"))
		if after := w.head(acme); after != before {
			w.Errorf("the head moved from %+v to %+v", before, after)
		}
		for _, id := range []string{"b", "d", "f"} {
			w.noEvent(acme, id)
		}
		w.used(acme, "calls", "10")
		w.used(acme, "hits", "1")
		w.plan(acme, "pro", Hard("calls", "12"))
		w.says(acme, "accepted duplicate accepted", Fact("b", "calls", "d", Ago(0), "1.000000000001"),
			Fact("b", "calls", "d", Ago(0), "1.000000000001"), Fact("f", "hits", "d", Ago(0), "1"))
		w.used(acme, "calls", "11.000000000001")
	}},
	{"a refusal says when the fact's own month ends, if it is not over", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.plan(acme, "none", Hard("calls", "0"))
		w.assign(acme, "", "none")
		vs := w.says(acme, "rejected:quota_exceeded", Fact("a", "calls", "c", Ago(0), "1"),
			Fact("b", "calls", "c", Ago(30*24*time.Hour), "1"), Untimed(Fact("c", "calls", "c", 0, "1")))
		for i, want := range []time.Time{Month.End().Time(), {}, Month.End().Time()} {
			p := vs[i].Problem
			if !p.ResetsAt.Equal(want) || p.RetryAfter != time.Hour {
				w.Errorf("event %d resets at %s, in %s, want %s", i, p.ResetsAt, p.RetryAfter, want)
			}
		}
		w.says(acme, "accepted", Fact("d", "calls", "c", Ago(0), "0"))
	}},
	{"a soft limit keeps overage until its cap, and each customer has a limit of its own", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.plan(acme, "pro", Soft("calls", "10", "1.5"))
		w.assign(acme, "c", "pro")
		w.assign(acme, "d", "pro")
		vs := w.says(acme, "accepted overage adjusted rejected:quota_exceeded overage accepted accepted",
			Fact("a", "calls", "c", Ago(0), "10"), Fact("b", "calls", "c", Ago(0), "1"),
			Fact("late", "calls", "c", Ago(72*time.Hour), "1"),
			Fact("x", "calls", "c", Ago(0), "3.1"), Fact("y", "calls", "c", Ago(0), "3"),
			Fact("z", "calls", "d", Ago(0), "10"), Fact("free", "calls", "e", Ago(0), "100"))
		if !vs[1].Overage || !vs[2].Overage || vs[0].Overage {
			w.Errorf("overage is %t, %t, %t", vs[0].Overage, vs[1].Overage, vs[2].Overage)
		}
		w.again()
		for id, want := range map[string]usage.Status{"a": usage.Accepted, "b": usage.Overage, "late": usage.Adjusted} {
			r, _ := w.event(acme, usage.KeyOfID(id))
			if r.Event.Status() != want || r.Event.Over() != (id != "a") {
				w.Errorf("%s is kept as %s, over %t", id, r.Event.Status(), r.Event.Over())
			}
		}
		w.says(acme, "rejected:quota_exceeded overage accepted", Fact("x", "calls", "c", Ago(0), "3.1"),
			Fact("x", "calls", "d", Ago(0), "3.1"), Fact("zero", "calls", "c", Ago(0), "0"))
		w.totals(acme, "calls", "c", "15 on time 14")
		w.used(acme, "calls", "128.1")
	}},
	{"the tenant's limit and the customer's both hold", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.plan(acme, "company", Soft("calls", "10", "2"))
		w.plan(acme, "seat", Hard("calls", "6"))
		w.assign(acme, "", "company")
		w.assign(acme, "c", "seat")
		w.says(acme, "rejected:quota_exceeded accepted overage rejected:quota_exceeded rejected:quota_exceeded",
			Fact("a", "calls", "c", Ago(0), "7"), Fact("b", "calls", "c", Ago(0), "6"),
			Fact("c", "calls", "d", Ago(0), "5"),
			Fact("d", "calls", "d", Ago(0), "10"), Fact("e", "calls", "c", Ago(0), "1"))
		w.again()
		w.alerts(acme, "calls:2026-11:c 80", "calls:2026-11:c 100", "calls:2026-11 80", "calls:2026-11 100")
	}},
	{"a correction that takes away is never refused, and gives back what it takes", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum), NewMeter("hits", meter.Count))
		w.plan(acme, "pro", Hard("calls", "10"), Hard("hits", "1"))
		w.assign(acme, "c", "pro")
		w.says(acme, "accepted accepted", Fact("a", "calls", "c", Ago(0), "10"), Fact("h", "hits", "c", Ago(0), "1"))
		w.says(acme, "accepted rejected:quota_exceeded accepted rejected:quota_exceeded accepted",
			Correction("down", "a", "-2"), Fact("b", "calls", "c", Ago(0), "3"), Correction("half", "h", "-0.5"),
			Fact("i", "hits", "c", Ago(0), "1"),
			Correction("gone", "h", "-0.5"))
		w.again()
		w.says(acme, "accepted accepted", Fact("b", "calls", "c", Ago(0), "2"), Fact("i", "hits", "c", Ago(0), "1"))
		w.plan(acme, "pro", Hard("calls", "1"))
		w.says(acme, "accepted", Correction("less", "a", "-4"))
		w.used(acme, "calls", "6")
		w.used(acme, "hits", "1")
	}},
	{"a correction that raises a fact is judged by quota like a fact", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum), NewMeter("hits", meter.Count))
		w.plan(acme, "company", Soft("calls", "10", "2"), Hard("hits", "1"))
		w.plan(acme, "seat", Hard("calls", "15"))
		w.assign(acme, "", "company")
		w.assign(acme, "c", "seat")
		w.says(acme, "accepted accepted accepted", Fact("a", "calls", "c", Ago(0), "6"),
			Fact("b", "calls", "d", Ago(0), "1"), Fact("h", "hits", "c", Ago(0), "1"))
		w.again() // what a correction needs of its target's customer is then nowhere in memory
		vs := w.says(acme, "overage rejected:quota_exceeded rejected:quota_exceeded duplicate",
			Correction("up", "a", "5"), Correction("far", "a", "4.000000000001"),
			Correction("far", "b", "8.000000000001"), Correction("up", "a", "5"))
		if p := vs[1].Problem; calendar.FromTime(p.ResetsAt) != Month.End() {
			w.Errorf("the refusal says %+v", p)
		}
		if r, _ := w.event(acme, usage.KeyOfID("up")); r.Event.Status() != usage.Overage {
			w.Errorf("the raise is kept as %s", r.Event.Status())
		}
		w.noEvent(acme, "far")
		w.again()
		w.says(acme, "accepted accepted rejected:quota_exceeded accepted", Correction("off", "h", "-1"),
			Fact("i", "hits", "c", Ago(0), "1"), Correction("on", "h", "1"), Correction("more", "i", "5"))
		w.used(acme, "calls", "12")
		w.used(acme, "hits", "1")
		w.totals(acme, "calls", "c", "11")
	}},
	{"a raise beside its target in one batch is judged too, and each meter of a type by its own quota", func(w *world) {
		w.create(acme, mixMeters()...)
		w.plan(acme, "pro", Hard("m-count", "2"), Hard("m-sum", "5"))
		w.assign(acme, "c", "pro")
		vs := w.says(acme, "accepted rejected:quota_exceeded accepted accepted rejected:quota_exceeded",
			mix("a", "c", Ago(0), "3", "u"), OfMeter(Correction("x", "a", "2.5"), "m-sum"),
			OfMeter(Correction("y", "a", "2"), "m-sum"), OfMeter(Correction("z", "a", "100"), "m-max"),
			mix("b", "c", Ago(0), "0.1", "u"))
		if !strings.Contains(vs[1].Problem.Detail, "m-sum") {
			w.Errorf("refused because %s", vs[1].Problem.Detail)
		}
		w.used(acme, "m-sum", "5")
		w.used(acme, "m-count", "1")
		w.closePeriod(acme, Month)
		w.says(acme, "rejected:quota_exceeded adjusted adjusted", OfMeter(Correction("late", "a", "1"), "m-sum"),
			OfMeter(Correction("down", "a", "-2"), "m-sum"), OfMeter(Correction("late", "a", "1"), "m-sum"))
		w.used(acme, "m-sum", "4")
	}},
	{"a raise that reaches a threshold is followed by its alert", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.plan(acme, "pro", Hard("calls", "10"))
		w.assign(acme, "", "pro")
		w.assign(acme, "c", "pro")
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "2"))
		w.again()
		w.says(acme, "accepted accepted", Correction("up", "a", "6"), Correction("further", "a", "2"))
		w.alerts(acme, "calls:2026-11 80", "calls:2026-11:c 80", "calls:2026-11 100", "calls:2026-11:c 100")
	}},
	{"a threshold is reported once in a period, right behind the row that reached it", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.plan(acme, "pro", Soft("calls", "10", "3"))
		w.assign(acme, "", "pro")
		vs := w.says(acme, "accepted accepted", Fact("a", "calls", "c", Ago(0), "7.999999999999"),
			Fact("b", "calls", "c", Ago(0), "0.000000000001"))
		w.alerts(acme, "calls:2026-11 80")
		if r := w.rows(acme, vs[1].Seq)[0]; r.Change == nil || r.Change.Type != "quota.threshold_reached" ||
			r.Change.Source != "system" || r.Change.Actor != "system" ||
			r.Change.Payload != `{"meter":"calls","customer":null,"period":"2026-11","threshold":80,"plan":"pro",`+
				`"limit":"10","used":"8"}` {
			w.Errorf("behind the row stands %+v", r.Change)
		}
		w.again()
		w.says(acme, "accepted accepted accepted", Correction("less", "a", "-5"), Fact("c", "calls", "c", Ago(0), "6"),
			Fact("d", "calls", "c", Ago(0), "1"))
		w.alerts(acme, "calls:2026-11 80", "calls:2026-11 100")
		w.says(acme, "accepted", Correction("least", "c", "-6"))
		w.again()
		w.plan(acme, "pro", Soft("calls", "20", "3"))
		w.says(acme, "accepted", Fact("e", "calls", "c", Ago(0), "16"))
		w.alerts(acme, "calls:2026-11 80", "calls:2026-11 100")
		w.says(acme, "accepted", Fact("f", "calls", "c", Ago(30*24*time.Hour), "20"))
		w.alerts(acme, "calls:2026-11 80", "calls:2026-11 100", "calls:2026-10 80", "calls:2026-10 100")
	}},
	{"a plan holds from its commit on, for what was used before too, and not after it is taken away", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "50"))
		w.plan(acme, "pro", Hard("calls", "10"))
		w.says(acme, "accepted", Fact("b", "calls", "c", Ago(0), "1"))
		w.assign(acme, "", "pro")
		w.again()
		w.says(acme, "rejected:quota_exceeded accepted", Fact("c", "calls", "c", Ago(0), "1"),
			Fact("d", "calls", "c", Ago(0), "0"))
		w.alerts(acme, "calls:2026-11 80", "calls:2026-11 100")
		w.assign(acme, "", "")
		w.says(acme, "accepted", Fact("c", "calls", "c", Ago(0), "1"))
		w.assign(acme, "c", "missing")
		w.says(acme, "accepted", Fact("e", "calls", "c", Ago(0), "1"))
		w.used(acme, "calls", "53")
	}},
	{"a fact of several meters is refused whole, for the first reason in slug order", func(w *world) {
		w.create(acme, mixMeters()...)
		w.plan(acme, "pro", Soft("m-count", "1", "100"), Hard("m-sum", "5"))
		w.assign(acme, "", "pro")
		vs := w.says(acme, "accepted rejected:quota_exceeded overage", mix("a", "c", Ago(0), "5", "u"),
			mix("b", "c", Ago(0), "1", "v"), mix("d", "c", Ago(0), "0", "v"))
		if !strings.Contains(vs[1].Problem.Detail, "m-sum") {
			w.Errorf("refused because %s", vs[1].Problem.Detail)
		}
		w.plan(acme, "pro", Hard("m-count", "2"), Hard("m-sum", "5"))
		vs = w.says(acme, "rejected:quota_exceeded", mix("b", "c", Ago(0), "1", "v"))
		if !strings.Contains(vs[0].Problem.Detail, "m-count") {
			w.Errorf("refused because %s", vs[0].Problem.Detail)
		}
		w.again()
		w.totals(acme, "m-count", "c", "2")
		w.totals(acme, "m-unique", "c", "2")
		w.used(acme, "m-sum", "5")
		w.used(acme, "m-max", "0")
	}},
	{"a batch reports so many thresholds and the next fact the rest", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		q := Hard("calls", "8")
		q.Thresholds = []uint16{10, 20, 30, 40, 50, 60, 70, 80}
		w.plan(acme, "pro", q)
		var events, more []usage.Event
		for i := range 10 {
			customer := fmt.Sprint("c", i)
			w.assign(acme, customer, "pro")
			events = append(events, Fact(fmt.Sprint("e", i), "calls", customer, Ago(0), "7"))
			more = append(more, Fact(fmt.Sprint("f", i), "calls", customer, Ago(0), "0"))
		}
		count := func() (n int) {
			for _, r := range w.rows(acme, 0) {
				if r.Change != nil && r.Change.EntityType == quota.AlertKind.Name {
					n++
				}
			}
			return n
		}
		w.says(acme, "accepted", events...)
		if n := count(); n != quota.MaxAlerts {
			w.Errorf("%d thresholds were reported, want %d", n, quota.MaxAlerts)
		}
		w.again()
		w.says(acme, "accepted", more...)
		if n := count(); n != 80 {
			w.Errorf("%d thresholds were reported in the end, want 80", n)
		}
	}},
	{"plans and their customers can be read and listed", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.create("other", NewMeter("calls", meter.Sum))
		p := quota.Plan{Name: "b", Quotas: []quota.Quota{Soft("calls", "10", "1.5")},
			Prices: []byte(`[{"meter":"calls","per_unit":"0.01"}]`)}
		w.update(acme, func(tx store.Tx) error {
			p.CreatedAt, p.UpdatedAt = tx.Now(), tx.Now()
			for _, name := range []string{"c", "a"} {
				if err := PutPlan(tx, quota.Plan{Name: name, CreatedAt: tx.Now()}); err != nil {
					return err
				}
			}
			if err := PutPlan(tx, p); err != nil {
				return err
			}
			if err := Assign(tx, "", "a"); err != nil {
				return err
			}
			for _, customer := range []string{"é", "x", "gone", "b"} {
				if err := Assign(tx, customer, "b"); err != nil {
					return err
				}
			}
			got, err := store.Assignment(tx, "x")
			if err != nil || got.Plans.At(tx.Now()).Plan != "b" {
				return fmt.Errorf("within its own transaction x has %+v, %w", got, err)
			}
			if list, err := store.Assignments(tx, "", 10); err != nil || len(list) != 4 {
				return fmt.Errorf("within its own transaction %v are listed, %w", list, err)
			}
			return Assign(tx, "gone", "")
		})
		refusal := problem.New(problem.Fixed, "changed my mind")
		err := w.s.Update(context.Background(), acme, func(tx store.Tx) error {
			if err := Assign(tx, "x", "c"); err != nil {
				return err
			}
			if err := PutPlan(tx, quota.Plan{Name: "b"}); err != nil {
				return err
			}
			return refusal
		})
		w.code("a change of mind", err, problem.Fixed)
		w.again()
		w.view(acme, func(v store.View) { w.listPlans(v, p) })
		w.view("other", func(v store.View) {
			plans, err := store.List(v, &quota.PlanKind, store.Page{Limit: 10})
			list, err2 := store.Assignments(v, "", 10)
			if len(plans)+len(list) != 0 || err != nil || err2 != nil {
				w.Errorf("another tenant sees %v and %v, %v, %v", plans, list, err, err2)
			}
		})
	}},
	{"racing callers never exceed a hard limit, and waste none of it", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.plan(acme, "pro", Hard("calls", "20"))
		w.plan(acme, "seat", Hard("calls", "5"))
		w.assign(acme, "", "pro")
		w.assign(acme, "c0", "seat")
		var accepted atomic.Int64
		together(submitters, func(i int) {
			for n := range perSubmitter {
				e := Fact(fmt.Sprint(i, "-", n), "calls", fmt.Sprint("c", n%2), Ago(0), "1")
				vs, err := w.s.Record(context.Background(), store.Batch{Tenant: acme, Events: []usage.Event{e, e}})
				if err != nil {
					w.Errorf("record: %v", err)
					return
				}
				if vs[0].Status == usage.Accepted {
					accepted.Add(1)
				}
				if want := map[usage.Status]usage.Status{usage.Accepted: usage.Duplicate,
					usage.Rejected: usage.Rejected}[vs[0].Status]; vs[1].Status != want {
					w.Errorf("%s was %s and then %s", e.ID, said(vs[0]), said(vs[1]))
				}
			}
		})
		if accepted.Load() != 20 {
			w.Errorf("%d were accepted, want 20", accepted.Load())
		}
		w.again()
		w.used(acme, "calls", "20")
		w.totals(acme, "calls", "c0", "5")
	}},
}

func (w *world) listPlans(v store.View, p quota.Plan) {
	w.Helper()
	got, err := store.Get(v, &quota.PlanKind, "b")
	if err != nil {
		w.Errorf("plan b: %v", err)
	}
	same(w, "plan b", got, p)
	_, err = store.Get(v, &quota.PlanKind, "d")
	w.code("a plan that is not there", err, problem.NotFound)
	var names []string
	for after := ""; ; {
		page, err := store.List(v, &quota.PlanKind, store.Page{After: after, Limit: 2})
		if err != nil {
			w.Fatalf("list plans: %v", err)
		}
		for i := range page {
			names = append(names, page[i].Name)
		}
		if len(page) < 2 {
			break
		}
		after = page[1].Name
	}
	same(w, "the list of plans", names, []string{"a", "b", "c"})
	for customer, want := range map[string]string{"": "a", "x": "b", "gone": "", "nobody": ""} {
		if a, err := store.Assignment(v, customer); err != nil || a.Customer != customer ||
			a.Plans.At(v.Now()).Plan != want {
			w.Errorf("%q has %+v, %v, want plan %q", customer, a, err, want)
		}
	}
	first, err := store.Assignments(v, "", 2)
	if err != nil {
		w.Fatalf("list customers: %v", err)
	}
	rest, err := store.Assignments(v, first[len(first)-1].Customer, 2)
	if err != nil {
		w.Fatalf("list customers: %v", err)
	}
	var want []quota.Assignment
	for _, customer := range []string{"b", "x", "é"} {
		want = append(want, quota.Assignment{Customer: customer, Plans: quota.Schedule{{From: Ago(0), Plan: "b"}}})
	}
	same(w, "the customers with plans", append(first, rest...), want)
	_, err = v.Tally(99, Month)
	w.code("the tally of a meter that is not there", err, problem.NotFound)
}
