package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/store"
)

// checkAudit asks the audit log some questions that its own rows suggest, and wants what a plain look at the rows
// gives.
func (b *books) checkAudit() {
	b.Helper()
	changes := b.changes()
	checkQuery(b, b.v, b.id, changes, store.AuditQuery{}, many)
	if len(changes) == 0 {
		return
	}
	r := &changes[len(changes)/2]
	e := &r.Change.Event
	checkQuery(b, b.v, b.id, changes, store.AuditQuery{Type: e.Type, Before: r.Seq + 1}, many)
	checkQuery(b, b.v, b.id, changes, store.AuditQuery{EntityType: e.EntityType, EntityID: e.EntityID, Source: e.Source,
		From: r.At}, 3)
}

// changes lists the changes as the audit log shows them.
func (b *books) changes() (changes []ledger.Row) {
	for _, r := range b.rows {
		if r.Change != nil && r.Change.EntityType != audit.EntityRequest {
			changes = append(changes, ledger.Row{Seq: r.Seq, At: r.At, Change: &ledger.Change{Event: r.Change.Event}})
		}
	}
	return changes
}

// CheckAudit asks the audit log every question that its rows suggest.
func CheckAudit(t TB, s store.Store, id string) {
	t.Helper()
	err := s.View(context.Background(), id, func(v store.View) error {
		b := &books{TB: t, v: v, id: id, head: v.Head(), rows: readRows(t, v, 0, everything)}
		changes := b.changes()
		queries := []store.AuditQuery{{}, {Type: "no.such"}, {Source: "nobody"}, {EntityType: "none", EntityID: "x"}}
		for i := 0; i < len(changes); i += 1 + len(changes)/8 {
			queries = append(queries, questions(&changes[i])...)
		}
		for _, q := range queries {
			for _, limit := range []int{1, 3, many} {
				checkQuery(t, v, id, changes, q, limit)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("view %s: %v", id, err)
	}
}

// questions are those that a row answers, alone and with others.
func questions(r *ledger.Row) []store.AuditQuery {
	e := &r.Change.Event
	out := []store.AuditQuery{{Before: r.Seq}, {Before: r.Seq + 1}, {From: r.At}, {To: r.At},
		{From: r.At, To: r.At + 1}, {From: r.At + 1, Offset: 1}, {To: r.At + 1, Offset: 2}}
	for set := range 1 << 4 {
		q := store.AuditQuery{}
		for bit, ask := range [...]func(){
			func() { q.EntityType = e.EntityType },
			func() { q.EntityID = e.EntityID },
			func() { q.Type = e.Type },
			func() { q.Source = e.Source },
		} {
			if set&(1<<bit) != 0 {
				ask()
			}
		}
		bounded, passing := q, q
		bounded.Before, bounded.From = r.Seq+1, r.At
		passing.Offset = 1
		out = append(out, q, bounded, passing)
	}
	return out
}

func checkQuery(t TB, v store.View, id string, changes []ledger.Row, q store.AuditQuery, limit int) {
	t.Helper()
	var all []ledger.Row
	for _, r := range slices.Backward(changes) {
		if q.Wants(&r) {
			all = append(all, r)
		}
	}
	all = all[min(q.Offset, len(all)):]
	q.Limit = limit
	got, err := v.AuditEvents(q)
	if err != nil {
		t.Fatalf("%s: audit events %+v: %v", id, q, err)
	}
	if want := all[:min(q.Limit, len(all))]; !slices.EqualFunc(got, want, sameAudit) {
		t.Errorf("%s: audit events %+v are %v, want %v", id, q, numbers(got), numbers(want))
	}
}

func sameAudit(a, b ledger.Row) bool {
	return a.Seq == b.Seq && a.At == b.At && a.Event == nil && a.Change != nil && a.Change.Event == b.Change.Event &&
		a.Change.State.IsZero()
}

func numbers(rows []ledger.Row) (out []uint64) {
	for i := range rows {
		out = append(out, rows[i].Seq)
	}
	return out
}

// note appends a change that leaves nothing behind.
func note(tx store.Tx, e audit.Event) error {
	_, err := tx.Append(ledger.Change{Event: e})
	return err
}

// The audit log.
var auditCases = []Case{
	{"the audit log is found by any of its sides, the newest first", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		for i := range 60 {
			w.clock.Advance(time.Duration(i%3) * time.Second)
			w.update(acme, func(tx store.Tx) error {
				for j := range 1 + i%3 {
					e := audit.Of([]string{"meter", "plan", "période"}[(i+j)%3], []string{"created", "updated"}[i%2],
						[]string{"a", "b", "a\x01", ""}[j])
					e.Source, e.Actor, e.Payload = []string{"api", "system"}[i/7%2], "k", `{"n":1}`
					if err := note(tx, e); err != nil {
						return err
					}
				}
				return nil
			})
			if i%20 == 7 {
				w.record(acme, Fact(fmt.Sprint("e", i), "calls", "ann", calendar.FromTime(Start), "1"))
				w.again()
			}
		}
		CheckAudit(w, w.s, acme)
		w.again()
		CheckAudit(w, w.s, acme)
	}},
	{"a transaction sees its own audit events, and others only when they are committed", func(w *world) {
		w.create(acme)
		at := w.head(acme).Seq
		w.update(acme, func(tx store.Tx) error {
			if err := note(tx, audit.Of("meter", "created", "m")); err != nil {
				return err
			}
			got, err := tx.AuditEvents(store.AuditQuery{EntityType: "meter", Limit: many})
			if err == nil && (len(got) != 1 || got[0].Seq != at+1) {
				w.Errorf("the transaction sees %v of its own", numbers(got))
			}
			all, err := tx.AuditEvents(store.AuditQuery{Limit: many, Offset: 1})
			if err == nil && uint64(len(all)) != at {
				w.Errorf("the transaction sees %v before its own", numbers(all))
			}
			return err
		})
	}},
	{"the audit log of a tenant is its own", func(w *world) {
		w.create(acme)
		w.create("bolt")
		w.view(acme, func(v store.View) {
			got, err := v.AuditEvents(store.AuditQuery{EntityType: "tenant", Limit: many})
			if err != nil || len(got) != 1 || got[0].Change.EntityID != acme {
				w.Errorf("got %v, %v", numbers(got), err)
			}
		})
	}},
	{"audit events carry no state", func(w *world) {
		w.create(acme)
		w.view(acme, func(v store.View) {
			got, err := v.AuditEvents(store.AuditQuery{Limit: many, To: calendar.MaxMicros})
			if err != nil || len(got) == 0 || !got[0].Change.State.IsZero() {
				w.Errorf("got %+v, %v", got, err)
			}
		})
	}},
}
