package engine

import (
	"sync"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store/engine/state"
	"github.com/tallystick/tallystick/internal/store/resident"
)

// Bounds of a group. Facts keep the time that deciding takes within a few milliseconds; bytes keep the record well
// inside a segment.
const (
	maxGroupFacts = 16_000
	// goodGroupFacts are worth a sync: the group goes when the writer is free.
	goodGroupFacts = 8000
	maxGroupBytes  = 8 << 20
)

// group is what one journal record will hold, and the calls that wait for it.
type group struct {
	works    []*work
	sections []*sectionBuild
	facts    int
	bound    int           // largest encoding of what is in it
	done     chan struct{} // closed when it is durable
}

func newGroup() *group { return &group{done: make(chan struct{})} }

// sectionBuild is a tenant's section in the making. Its rows keep their addresses until it is released.
type sectionBuild struct {
	section
	book     *book
	resident *resident.Set // after the section
	chunks   [][]usage.Row
	used     int // rows handed out of chunks
	place    state.Section
}

const chunkRows = 256

var sectionPool = sync.Pool{New: func() any { return new(sectionBuild) }}

// sectionFor returns the book's section in the group, which sees one time throughout.
func (g *group) sectionFor(e *Engine, b *book) *sectionBuild {
	if b.section != nil {
		return b.section
	}
	s := sectionPool.Get().(*sectionBuild)
	s.book, s.tenant, s.first = b, b.number, b.seq+1
	s.at = max(b.clock, calendar.FromTime(e.now()))
	s.place = newPlace(s.first)
	b.section = s
	g.sections = append(g.sections, s)
	return s
}

// slot is where the next event row may be written. It is taken only by keep.
func (s *sectionBuild) slot() *usage.Row {
	if s.used == len(s.chunks)*chunkRows {
		s.chunks = append(s.chunks, make([]usage.Row, chunkRows))
	}
	return &s.chunks[s.used/chunkRows][s.used%chunkRows]
}

// keep takes the row in the slot into the section.
func (s *sectionBuild) keep(by string, r *usage.Row) {
	s.used++
	s.rows = append(s.rows, ledger.Row{Seq: s.first + uint64(len(s.rows)), At: s.at, By: by, Event: r})
	notePlace(&s.place, r)
}

// newPlace is the place of a section without events yet.
func newPlace(first uint64) state.Section {
	return state.Section{First: first, MinTime: calendar.MaxMicros, MaxTime: calendar.MinMicros}
}

func notePlace(p *state.Section, r *usage.Row) {
	p.MinTime, p.MaxTime = min(p.MinTime, r.Time), max(p.MaxTime, r.Time)
	if r.Status() == usage.Adjusted {
		p.Adjusted = true
	}
}

// release gives the section's memory back and forgets the requests' memory that its rows point to.
func (s *sectionBuild) release() {
	for i := range s.used {
		r := &s.chunks[i/chunkRows][i%chunkRows]
		outcomes := r.Outcomes
		clear(outcomes)
		*r = usage.Row{Outcomes: outcomes[:0]}
	}
	clear(s.rows)
	rows, links, chunks := s.rows[:0], s.links[:0], s.chunks
	*s = sectionBuild{chunks: chunks}
	s.rows, s.links = rows, links
	sectionPool.Put(s)
}
