package engine

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/engine/slab"
	"github.com/tallystick/tallystick/internal/store/engine/state"
	"github.com/tallystick/tallystick/internal/store/resident"
)

// book is one tenant. What it holds in memory does not grow with its ledger.
type book struct {
	number uint32
	id     string

	// Decided, not yet necessarily durable. Guarded by Engine.mu.
	seq       uint64
	clock     calendar.Micros
	resident  *resident.Set
	used      map[uint32]bool       // meters that have events, by number
	lastUsed  uint32                // the meter whose use was noted last
	critical  map[criticalKind]bool // kinds that its rows have
	assigned  assigned
	tallies   [recentTallies]*tally // by meter number, as far as there is room; the rest is in Engine.tallies
	days      bookDays
	section   *sectionBuild // of the group being decided, or nil
	undurable *group        // the last group that changed this book, or nil
	dirty     []slab.Ref    // changed since the last checkpoint began; see cells
	saving    []slab.Ref    // that the checkpoint under way saves

	// Durable. The writer replaces them before it answers.
	published atomic.Pointer[published]
	preparers sync.Pool // *usage.Preparer, of any catalog

	// queued is this tenant's part of the queue; guarded by queue.mu.
	queued fifo

	// Where the sections are that the state does not know yet, in order. Guarded by placesMu.
	placesMu sync.RWMutex
	places   []state.Section

	tiles tiles
}

// published is what readers and admissions see of a book: only what is durable.
type published struct {
	head     ledger.Head
	resident *resident.Set
}

func newBook(number uint32, id string, kinds *entity.Kinds) *book {
	b := &book{
		number: number, id: id, resident: resident.Empty(kinds),
		used: map[uint32]bool{}, critical: map[criticalKind]bool{},
	}
	b.assigned.limit = maxAssigned
	b.published.Store(&published{resident: b.resident})
	return b
}

// dirtyAt is one of all counters that the state does not have as they are. Engine.mu is held.
func (b *book) dirtyAt(i int) slab.Ref {
	if i < len(b.saving) {
		return b.saving[i]
	}
	return b.dirty[i-len(b.saving)]
}

// place finds the section that holds a row among those that the state does not know.
func (b *book) place(seq uint64) (state.Section, bool) {
	b.placesMu.RLock()
	defer b.placesMu.RUnlock()
	i := sort.Search(len(b.places), func(i int) bool { return b.places[i].First > seq })
	if i == 0 || !b.places[i-1].Holds(seq) {
		return state.Section{}, false
	}
	return b.places[i-1], true
}

// placesFrom copies up to n places from the section with that first seq on.
func (b *book) placesFrom(first uint64, n int) []state.Section {
	b.placesMu.RLock()
	defer b.placesMu.RUnlock()
	i := sort.Search(len(b.places), func(i int) bool { return b.places[i].First >= first })
	return slices.Clone(b.places[i:min(len(b.places), i+n)])
}

func (b *book) addPlace(s state.Section) {
	b.placesMu.Lock()
	b.places = append(b.places, s)
	b.placesMu.Unlock()
}

// placesBefore lists the places of records before a position.
func (b *book) placesBefore(p journal.Position) []state.Section {
	b.placesMu.RLock()
	defer b.placesMu.RUnlock()
	return b.places[:sort.Search(len(b.places), func(i int) bool { return !b.places[i].Position.Less(p) })]
}

// dropPlaces forgets the first n places, which the state knows now.
func (b *book) dropPlaces(n int) {
	b.placesMu.Lock()
	b.places = append([]state.Section(nil), b.places[n:]...)
	b.placesMu.Unlock()
}
