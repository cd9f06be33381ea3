package storetest

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/store"
)

// answered is a request whose answer is kept for a day.
func answered(key string, now calendar.Micros, body string) request.Stored {
	return request.Stored{Key: key, Fingerprint: request.Fingerprint("POST", "/v1/meters", "", "application/json",
		[]byte(body)), ExpiresAt: now.Add(24 * time.Hour),
		Answer: request.Answer{Status: 201, ContentType: "application/json", Location: "/v1/meters/m",
			Body: []byte(body)}}
}

func keep(tx store.Tx, r request.Stored) error {
	_, err := tx.Append(ledger.Keep(&r, "tester"))
	return err
}

func (w *world) kept(id string, want request.Stored) {
	w.Helper()
	w.view(id, func(v store.View) { w.same(v, want) })
}

func (w *world) same(v store.View, want request.Stored) {
	w.Helper()
	got, err := store.Request(v, want.Key)
	if err != nil {
		w.Fatalf("request %q: %v", want.Key, err)
	}
	if got.Fingerprint != want.Fingerprint || got.Status != want.Status || got.ContentType != want.ContentType ||
		got.Location != want.Location ||
		!bytes.Equal(got.Body, want.Body) || got.ExpiresAt != want.ExpiresAt || got.Tenant != want.Tenant {
		w.Errorf("request %q is kept as %+v, want %+v", want.Key, got, want)
	}
}

// Answers to requests.
var requestCases = []Case{
	{"an answer is kept with its effect, across restarts", func(w *world) {
		w.create(acme)
		now := calendar.FromTime(w.clock.Now())
		made, plain := answered("k 1", now, `{"slug":"m"}`), answered("k2", now, "")
		plain.Status, plain.ContentType, plain.Location, plain.Body = 204, "", "", nil
		w.update(acme, func(tx store.Tx) error {
			if err := PutMeter(tx, NewMeter("m", meter.Sum)); err != nil {
				return err
			}
			if err := keep(tx, made); err != nil {
				return err
			}
			w.same(tx, made)
			return nil
		})
		w.update(acme, func(tx store.Tx) error { return keep(tx, plain) })
		for range 2 {
			w.kept(acme, made)
			w.kept(acme, plain)
			w.meter(acme, "m")
			w.again()
		}
	}},
	{"an answer whose transaction failed is not kept", func(w *world) {
		w.create(acme)
		lost := problem.New(problem.Conflict, "no")
		err := w.s.Update(context.Background(), acme, func(tx store.Tx) error {
			if err := keep(tx, answered("k", tx.Now(), "x")); err != nil {
				return err
			}
			return lost
		})
		w.code("the failed transaction", err, problem.Conflict)
		w.view(acme, func(v store.View) {
			_, err := store.Request(v, "k")
			w.code("the answer", err, problem.NotFound)
		})
	}},
	{"a key used again after its time has the later answer, and others are freed", func(w *world) {
		w.create(acme)
		const keys = 70
		for i := range keys {
			w.update(acme, func(tx store.Tx) error { return keep(tx, answered(fmt.Sprint("k", i), tx.Now(), "first")) })
		}
		w.clock.Advance(25 * time.Hour)
		w.again()
		second := answered("k3", calendar.FromTime(w.clock.Now()), "second")
		for range 3 {
			w.update(acme, func(tx store.Tx) error { return keep(tx, second) })
			w.again()
			w.kept(acme, second)
		}
		w.view(acme, func(v store.View) {
			for i := range keys {
				r, err := store.Request(v, fmt.Sprint("k", i))
				if err != nil && !problem.Is(err, problem.NotFound) {
					w.Errorf("request k%d: %v", i, err)
				}
				if err == nil && i != 3 && r.Live(v.Now()) {
					w.Errorf("request k%d has not expired", i)
				}
			}
		})
	}},
	{"the keys of a tenant are its own", func(w *world) {
		w.create(acme)
		w.create("bolt")
		w.update(acme, func(tx store.Tx) error { return keep(tx, answered("k", tx.Now(), "x")) })
		w.view("bolt", func(v store.View) {
			_, err := store.Request(v, "k")
			w.code("another tenant's key", err, problem.NotFound)
		})
	}},
	{"a stored answer is a row of the ledger, and no audit event", func(w *world) {
		w.create(acme)
		before := w.head(acme)
		w.update(acme, func(tx store.Tx) error { return keep(tx, answered("k", tx.Now(), "x")) })
		if w.head(acme).Seq != before.Seq+1 || w.head(acme).Tree == before.Tree {
			w.Errorf("the head has not moved by one row")
		}
		w.view(acme, func(v store.View) {
			got, err := v.AuditEvents(store.AuditQuery{Limit: many})
			if err != nil || uint64(len(got)) != before.Seq {
				w.Errorf("the audit log shows %v, %v", numbers(got), err)
			}
		})
	}},
}
