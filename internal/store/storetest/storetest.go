// Package storetest is the conformance suite that every store must pass. Each case is a promise of the port, written as
// a sentence, and a story that a store could get wrong. The suite speaks to the port alone: it knows no store, and no
// store gets easier questions than another.
//
// Run plays the stories. Life plays random histories on two stores at once. Compare and CheckLedger are the two judges,
// one against another store and one against the ledger's own rows. All of them report to a TB, so that a test can hand
// them a store that is broken on purpose and watch them object.
package storetest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/store"
)

// Start is what a new Clock shows. It lies within a month, so that stories can go back days without leaving the period.
var Start = time.Date(2026, 11, 15, 2, 10, 0, 0, time.UTC)

// Clock is a clock that only the test moves. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex // guards now
	now time.Time
}

// NewClock makes a clock that stands at Start.
func NewClock() *Clock { return &Clock{now: Start} }

// Now is what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Set moves the clock to t, also backward.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// Advance moves the clock by d, also backward.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// TB is what the checks report to: *testing.T, *rapid.T, or a recorder that expects failures. Fatalf does not return.
// Errorf may be called by several goroutines at once.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Maker makes stores for a test.
type Maker struct {
	// Open makes a fresh, empty store that knows Kinds and reads the clock it is given. The suite closes it.
	Open func(t *testing.T, now func() time.Time) store.Store
	// Reopen closes the store and opens the same data again. It is nil for a store that forgets everything.
	Reopen func(t *testing.T, s store.Store, now func() time.Time) store.Store
}

// Bench is what a case works with: an empty store, the clock that the store reads, and a way to close the store and
// open the same data again, nil for a store that forgets.
type Bench struct {
	Store  store.Store
	Clock  *Clock
	Reopen func(s store.Store) store.Store
}

// Case is one promise and the story that tests it.
type Case struct {
	Name string
	play func(w *world)
}

// Try plays the story, then has every ledger that it wrote checked. It returns the store that is open in the end, or
// nil when the story closed it.
func (c Case) Try(t TB, b Bench) store.Store {
	w := &world{TB: t, clock: b.Clock, s: b.Store, reopen: b.Reopen}
	c.play(w)
	if w.s != nil {
		for _, id := range w.tenants {
			CheckLedger(t, w.s, id)
		}
	}
	return w.s
}

// Cases lists the suite.
func Cases() []Case {
	return slices.Concat(identityCases, batchCases, atomicCases, concurrencyCases, orderCases, treeCases, numberCases,
		feedCases, lateCases, aheadCases, closeCases, correctionCases, sliceCases, updateCases, wallCases, listingCases,
		textCases, refusalCases, quotaCases,
		datedCases, auditCases, requestCases, entityCases, rowCases, horizonCases, faultCases, movedCases,
		epochCases, followCases)
}

// Run plays every story on a store of its own.
func Run(t *testing.T, m Maker) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			clock := NewClock()
			b := Bench{Clock: clock, Store: m.Open(t, clock.Now)}
			if m.Reopen != nil {
				b.Reopen = func(s store.Store) store.Store { return m.Reopen(t, s, clock.Now) }
			}
			s := c.Try(t, b)
			if s == nil {
				return
			}
			if err := s.Close(); err != nil {
				t.Errorf("close the store: %v", err)
			}
		})
	}
}
