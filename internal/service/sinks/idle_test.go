package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/service/sinks"
)

// switchboard is a receiver that counts the connections to it: a carrier has one from its first delivery until it is
// closed.
type switchboard struct {
	*receiver
	mu   sync.Mutex // guards what follows
	made int
	open []string // sinks
}

func (b *switchboard) Carrier(_ string, s *sink.Sink) (sinks.Carrier, error) {
	return &line{to: b, of: s.ID}, nil
}

type line struct {
	to            *switchboard
	of            string
	dialed, ended atomic.Bool
}

func (l *line) Deliver(ctx context.Context, d *sinks.Delivery) error {
	if l.ended.Load() {
		return errors.New("it is closed")
	}
	if !l.dialed.Swap(true) {
		l.to.mu.Lock()
		l.to.made++
		l.to.open = append(l.to.open, l.of)
		l.to.mu.Unlock()
	}
	return l.to.Deliver(ctx, d)
}

func (l *line) Close() error {
	if l.dialed.Load() && !l.ended.Swap(true) {
		l.to.mu.Lock()
		defer l.to.mu.Unlock()
		at := slices.Index(l.to.open, l.of)
		l.to.open = slices.Delete(l.to.open, at, at+1)
	}
	return nil
}

func (b *switchboard) connections() (made int, open []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made, slices.Clone(b.open)
}

// trickle commits a row and waits until the sink has it and nothing to do.
func (w *world) trickle(r *receiver, s *sink.Sink, tenant, name string) {
	w.Helper()
	w.record(tenant, name)
	w.expects(r, s, tenant)
	wait(w.T, "nobody is at work", func() bool {
		all, err := w.store.Followings(context.Background(), "", "", 10)
		if err != nil {
			w.Fatal(err)
		}
		for i := range all {
			if all[i].Claimed {
				return false
			}
		}
		return true
	})
}

// Rows that trickle in go over one connection, until the sink has been idle for long, is paused or changes, or the
// runner stops.
func TestATrickleOfRowsGoesOverOneConnection(t *testing.T) {
	w := newWorld(t, openEngine(t), "acme")
	var later atomic.Int64 // how far the runner's clock is ahead
	board := &switchboard{receiver: newReceiver(func(int, *sinks.Delivery) fault { return takes })}
	s := w.create("acme", func(s *sink.Sink) { s.Rows = sink.Events }, sinks.Start{Now: true})
	stop, _ := w.run(board, func(o *sinks.RunnerOptions) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	expect := func(want int) {
		t.Helper()
		if made, open := board.connections(); made != want || len(open) != 1 {
			t.Errorf("%d connections were made, of which %d are open; want %d and 1", made, len(open), want)
		}
	}
	closed := func() {
		t.Helper()
		wait(t, "the connection is closed", func() bool {
			_, open := board.connections()
			return len(open) == 0
		})
	}
	for i := range 20 {
		w.trickle(board.receiver, &s, "acme", fmt.Sprint("a", i))
		expect(1)
	}
	later.Add(int64(2 * time.Minute))
	closed()
	w.trickle(board.receiver, &s, "acme", "b")
	expect(2)
	change := func(to func(*sink.Sink)) {
		t.Helper()
		_, err := w.service.Change(t.Context(), "test", "acme", s.ID, func(s *sink.Sink) error { to(s); return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	change(func(s *sink.Sink) { s.Paused = true })
	closed()
	change(func(s *sink.Sink) { s.Paused = false })
	w.trickle(board.receiver, &s, "acme", "c")
	expect(3)
	change(func(s *sink.Sink) { s.URL = "https://elsewhere.example" })
	w.trickle(board.receiver, &s, "acme", "d")
	expect(4)
	if err := w.service.Delete(t.Context(), "test", "acme", s.ID); err != nil {
		t.Fatal(err)
	}
	closed()
	s = w.create("acme", func(s *sink.Sink) { s.Rows = sink.Events }, sinks.Start{Now: true})
	stop()
	stop, _ = w.run(board, nil)
	w.trickle(board.receiver, &s, "acme", "e")
	expect(5)
	stop()
	if made, open := board.connections(); made != 5 || len(open) != 0 {
		t.Errorf("%d connections were made and %d are open when the runner has stopped", made, len(open))
	}
}

// Idle connections are bounded in number: the one that is idle for longest is closed for the next.
func TestIdleConnectionsAreBounded(t *testing.T) {
	tenants := []string{"acme", "globex", "initech"}
	w := newWorld(t, openEngine(t), tenants...)
	board := &switchboard{receiver: newReceiver(func(int, *sinks.Delivery) fault { return takes })}
	of := map[string]*sink.Sink{}
	for _, id := range tenants {
		s := w.create(id, func(s *sink.Sink) { s.Rows = sink.Events }, sinks.Start{Now: true})
		of[id] = &s
	}
	stop, _ := w.run(board, func(o *sinks.RunnerOptions) { o.MaxIdle = 2 })
	defer stop()
	for i, c := range []struct {
		to   string
		open []string
		made int
	}{
		{"acme", []string{"acme"}, 1},
		{"globex", []string{"acme", "globex"}, 2},
		{"acme", []string{"acme", "globex"}, 2},
		{"initech", []string{"acme", "initech"}, 3}, // which was idle for less long
		{"acme", []string{"acme", "initech"}, 3},
		{"globex", []string{"acme", "globex"}, 4},
	} {
		w.trickle(board.receiver, of[c.to], c.to, fmt.Sprint("e", i))
		var want []string
		for _, id := range c.open {
			want = append(want, of[id].ID)
		}
		slices.Sort(want)
		wait(t, fmt.Sprintf("%q are open", c.open), func() bool {
			made, open := board.connections()
			slices.Sort(open)
			return made == c.made && slices.Equal(open, want)
		})
	}
}

// A connection whose delivery failed is not used for the next attempt once the sink has rested.
func TestAConnectionThatFailedIsNotKept(t *testing.T) {
	w := newWorld(t, openEngine(t), "acme")
	board := &switchboard{receiver: newReceiver(func(n int, _ *sinks.Delivery) fault {
		if n == 1 {
			return fails
		}
		return takes
	})}
	s := w.create("acme", func(s *sink.Sink) { s.Rows = sink.Events }, sinks.Start{Now: true})
	stop, _ := w.run(board, func(o *sinks.RunnerOptions) {
		o.Retries = []time.Duration{100 * time.Millisecond} // longer than what a worker waits for by itself
	})
	defer stop()
	w.trickle(board.receiver, &s, "acme", "a")
	if made, open := board.connections(); made != 2 || len(open) != 1 {
		t.Errorf("%d connections were made, of which %d are open", made, len(open))
	}
}
