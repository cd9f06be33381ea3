package engine

import (
	"bytes"
	"fmt"
	"slices"
	"unsafe"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store/engine/state"
	"github.com/tallystick/tallystick/internal/store/resident"
)

// # Sections that were read
//
// The journal gives rows by the section: one row costs as much as all rows of its tenant in that commit, and there may
// be thousands. Corrections, and facts that meet the rows of an earlier batch, tend to come as that batch did, so that
// the next row is in a section that was just decoded. Were each of them to decode it again, a batch of n corrections of
// a batch of n facts would take n² rows, with every tenant waiting.
//
// Rows never change once they are committed. That they leave makes no difference here: before they do their month lies
// below the tenant's floor, where nothing is corrected any more and no slice is asked for.

// Bounds of what is remembered. A row takes about half a kilobyte.
const (
	// recallBytes is the memory for sections that judging has read.
	recallBytes = 64 << 20
	// examineBytes is the same for a reader that looks at one row after the other: the rows of a fact and of its
	// corrections are in several sections, which those of the next fact share.
	examineBytes = 32 << 20
	// recallSections bounds what a search looks at. Sections of which so many fit into the bytes are small, and read
	// again in no time.
	recallSections = 64
)

// recalled is a section that was read from the journal. Nothing else uses its memory, now or later: rows of it may be
// in use after it was forgotten.
type recalled struct {
	section
	book  *book
	bytes int // that it takes
}

// recall remembers the sections that were used last. It serves one goroutine at a time.
type recall struct {
	limit  int // in bytes; the last section is kept however large it is
	bytes  int
	recent []*recalled // the one used last is the last
}

// find returns the section that holds a row, or nil.
func (m *recall) find(b *book, seq uint64) *recalled {
	for i := len(m.recent) - 1; i >= 0; i-- {
		if s := m.recent[i]; s.book == b && s.holds(seq) {
			copy(m.recent[i:], m.recent[i+1:])
			m.recent[len(m.recent)-1] = s
			return s
		}
	}
	return nil
}

// add remembers a section, and forgets those that were not used for the longest time.
func (m *recall) add(s *recalled) {
	m.recent = append(m.recent, s)
	m.bytes += s.bytes
	gone := 0
	for ; gone < len(m.recent)-1 && (m.bytes > m.limit || len(m.recent)-gone > recallSections); gone++ {
		m.bytes -= m.recent[gone].bytes
	}
	m.recent = slices.Delete(m.recent, 0, gone)
}

func (s *section) holds(seq uint64) bool { return seq >= s.first && seq-s.first < uint64(s.count()) }

// sectionForJudging returns the section that holds a row of the journal. What is on its way there is waited for.
func (e *Engine) sectionForJudging(b *book, seq uint64) (*recalled, error) {
	if s := e.recall.find(b, seq); s != nil {
		return s, nil
	}
	if b.undurable != nil {
		e.drain()
	}
	e.metrics.sectionsDeciding.Inc()
	return e.readInto(&e.recall, b, seq, b.resident)
}

// readInto reads the section that holds a row of the journal, and remembers it.
func (e *Engine) readInto(m *recall, b *book, seq uint64, set *resident.Set) (*recalled, error) {
	p, err := e.place(b, seq)
	if err != nil {
		return nil, err
	}
	s, err := e.readRecalled(b, p, set)
	if err != nil {
		return nil, err
	}
	m.add(s)
	return s, nil
}

// readRecalled reads a section into memory of its own: of a record that many tenants share it keeps its part.
func (e *Engine) readRecalled(b *book, p state.Section, set *resident.Set) (*recalled, error) {
	head, payload, err := e.readHeadAt(b, p)
	if err != nil {
		return nil, err
	}
	held := len(payload)
	if !head.pruned && len(head.body) < held/2 {
		head.body = bytes.Clone(head.body)
		held = len(head.body)
	}
	var d decoder
	s, err := d.decode(head, set)
	if err != nil {
		return nil, err
	}
	return &recalled{section: s, book: b, bytes: held + s.memory()}, nil
}

// memory is about what the decoded rows take, with what finds them by customer.
func (s *section) memory() int {
	const row = int(unsafe.Sizeof(ledger.Row{})+unsafe.Sizeof(usage.Row{})) + 40
	const outcome = int(unsafe.Sizeof(usage.Outcome{}) + unsafe.Sizeof(link(0)))
	return len(s.rows)*row + len(s.links)*outcome
}

// byCustomer finds the rows of a section by customer and month. It is made when it is first asked for.
type byCustomer struct {
	last  map[uint64]int32 // hash of customer and month → number of their last row in chain, from 1
	chain []chained        // of each row of the section, as far as it was taken in
	links int              // of the section that were passed
}

// chained is a row's place in the chain of its customer and month, or of another of the same hash.
type chained struct {
	before int32 // number of the row before it, as in last
	links  int32 // where the links of its outcomes begin
}

func hashBill(customer string, m calendar.Month) uint64 {
	return hashCustomer(customer) ^ uint64(m)*0x9E3779B97F4A7C15
}

// slice calls fn for the rows below a number that the counter folded, the last one first, and returns the link of the
// first of them all.
func (s *section) slice(id usage.CounterID, below uint64, fn func(*usage.Row, *usage.Outcome)) link {
	if s.customers == nil {
		s.customers = &byCustomer{last: map[uint64]int32{}}
	}
	c := s.customers
	c.extend(s)
	first := linkSame
	for at := c.last[hashBill(id.Customer, id.Month)]; at != 0; at = c.chain[at-1].before {
		r := s.rows[at-1].Event
		if r.Customer != id.Customer || r.Month() != id.Month {
			continue
		}
		for j := range r.Outcomes {
			if r.Outcomes[j].Meter != id.Meter {
				continue
			}
			first = s.links[int(c.chain[at-1].links)+j]
			if s.rows[at-1].Seq < below {
				fn(r, &r.Outcomes[j])
			}
		}
	}
	return first
}

// extend takes the rows in that the section got since. The last row of a section in the making may have no links yet:
// it is being folded.
func (c *byCustomer) extend(s *section) {
	for i := len(c.chain); i < len(s.rows); i++ {
		if s.rows[i].Kind() != ledger.EventRow {
			c.chain = append(c.chain, chained{})
			continue
		}
		r := s.rows[i].Event
		if c.links+len(r.Outcomes) > len(s.links) {
			return
		}
		hash := hashBill(r.Customer, r.Month())
		c.chain = append(c.chain, chained{before: c.last[hash], links: int32(c.links)})
		c.last[hash] = int32(i + 1)
		c.links += len(r.Outcomes)
	}
}

// walkSection calls fn for the rows of a section in the journal that the counter folded, and returns where the rows
// before them are.
func (e *Engine) walkSection(b *book, first uint64, id usage.CounterID, below uint64,
	fn func(*usage.Row, *usage.Outcome)) (earlier uint64, err error) {
	s, err := e.sectionForJudging(b, first)
	if err != nil {
		return 0, err
	}
	if s.first != first {
		return 0, fmt.Errorf("rows from %d on of tenant %s are not a section of their own: %w", first, b.id, errRecord)
	}
	chain := s.slice(id, below, fn)
	if chain == linkSame {
		return 0, fmt.Errorf("rows from %d on of tenant %s do not continue the chain of a counter: %w", first, b.id,
			errRecord)
	}
	return chain.earlier(s.first), nil
}

// rowForJudging returns a row that may be in the group being decided, in the one being written, or in the journal.
func (e *Engine) rowForJudging(b *book, seq uint64) (*ledger.Row, error) {
	if s := b.section; s != nil && seq >= s.first {
		return &s.rows[seq-s.first], nil
	}
	s, err := e.sectionForJudging(b, seq)
	if err != nil {
		return nil, err
	}
	return b.found(&s.section, seq)
}
