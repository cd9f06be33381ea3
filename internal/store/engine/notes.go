package engine

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// notes are the changes since the last checkpoint that are not counters: few and small beside them. Two sets exist: the
// one being written down, and the one that a checkpoint is saving; a reader asks both before it asks the state. Guarded
// by Engine.mu.
type notes struct {
	corrected   map[factMeter]usage.Corrected
	corrections map[factKey][]uint64
	members     map[memberKey]bool // on time?
	heads       map[*book]struct{}
	used        map[usedMeter]struct{}       // meters that got their first event
	critical    map[bookKind]uint64          // kinds that a ledger got, and the first row that has it
	changes     map[*book][]ledger.Row       // in order, without states
	entities    map[kindOf]map[string]*noted // by id
	changed     int                          // changes of the two above
	bytes       int                          // of their entities
}

type (
	factKey struct {
		book *book
		key  usage.Key
	}
	factMeter struct {
		factKey
		meter uint32
	}
	memberKey struct {
		book       *book
		id         usage.CounterID
		generation uint32
		member     string
	}
	usedMeter struct {
		book  *book
		meter uint32
	}
	bookKind struct {
		book *book
		criticalKind
	}
)

// A checkpoint starts when there are so many notes, or when their entities have so many bytes.
const (
	maxNotes     = 100_000
	maxNoteBytes = 64 << 20
)

const (
	// reapAtOnce is how many expired entities a checkpoint takes out of the state. Their rows stay in the ledger.
	reapAtOnce = 10_000
	// reindexAtOnce is how many entities a checkpoint looks at that another build has indexed.
	reindexAtOnce = 10_000
)

func newNotes() *notes {
	return &notes{
		corrected: map[factMeter]usage.Corrected{}, corrections: map[factKey][]uint64{},
		members: map[memberKey]bool{}, heads: map[*book]struct{}{}, used: map[usedMeter]struct{}{},
		critical: map[bookKind]uint64{}, changes: map[*book][]ledger.Row{}, entities: map[kindOf]map[string]*noted{},
	}
}

// full reports whether a checkpoint is due.
func (n *notes) full() bool {
	return len(n.corrected)+len(n.corrections)+len(n.members)+n.changed >= maxNotes || n.bytes >= maxNoteBytes
}

// saveNotes writes the notes that a checkpoint saves into it and returns how many entities have expired. Every entry is
// absolute: the state must not contain them already in another form.
func (e *Engine) saveNotes(c *state.Checkpoint) (reaped int, err error) {
	reaped, err = e.state.Reap(c, calendar.FromTime(e.now()), reapAtOnce)
	if err != nil {
		return 0, fmt.Errorf("take out expired entities: %w", err)
	}
	n := e.notes[1]
	n.saveFacts(c)
	for k := range n.used {
		c.SetUsed(k.book.number, k.meter)
	}
	for k, seq := range n.critical {
		c.SetCritical(k.book.number, k.kind, k.version, seq)
	}
	for b, rows := range n.changes {
		for i := range rows {
			c.SetAudit(b.number, &rows[i])
		}
	}
	for of, entities := range n.entities {
		for _, kept := range entities {
			if err := e.state.SetEntity(c, of.book.number, &kept.Entity, kept.changes); err != nil {
				return 0, err
			}
		}
	}
	return reaped, e.state.Reindex(c, e.reindexer, reindexAtOnce)
}

func (n *notes) saveFacts(c *state.Checkpoint) {
	for k, v := range n.corrected {
		c.SetCorrected(k.book.number, k.key, k.meter, v)
	}
	for k, seqs := range n.corrections {
		for _, seq := range seqs {
			c.AddCorrection(k.book.number, k.key, seq)
		}
	}
	for k, onTime := range n.members {
		c.SetMember(k.book.number, k.id, k.generation, k.member, onTime)
	}
}
