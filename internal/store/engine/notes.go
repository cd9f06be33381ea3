package engine

import (
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// notes are the changes since the last checkpoint that are not counters: few and small beside them. Two sets exist: the one being
// written down, and the one that a checkpoint is saving; a reader asks both before it asks the state. Guarded by Engine.mu.
type notes struct {
	corrected   map[factMeter]usage.Corrected
	corrections map[factKey][]uint64
	reverted    map[rowKey]uint64
	members     map[memberKey]bool // on time?
	entities    map[entityKey]state.Entity
	heads       map[*book]struct{}
	changes     map[*book][]ledger.Row // in order, without states
	changed     int                    // all of them
	requests    map[requestKey]keptRequest
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
	rowKey struct {
		book *book
		seq  uint64
	}
	memberKey struct {
		book       *book
		id         usage.CounterID
		generation uint32
		member     string
	}
	requestKey struct {
		book *book
		key  string
	}
	keptRequest struct {
		seq     uint64
		expires calendar.Micros
	}
	entityKey struct {
		book  *book
		class byte
		name  string
	}
)

func newNotes() *notes {
	return &notes{
		corrected: map[factMeter]usage.Corrected{}, corrections: map[factKey][]uint64{}, reverted: map[rowKey]uint64{},
		members: map[memberKey]bool{}, entities: map[entityKey]state.Entity{}, heads: map[*book]struct{}{}, changes: map[*book][]ledger.Row{},
		requests: map[requestKey]keptRequest{},
	}
}

func (n *notes) size() int {
	return len(n.corrected) + len(n.corrections) + len(n.members) + len(n.entities) + len(n.reverted) + n.changed + len(n.requests)
}

// save writes the notes into a checkpoint. The state must not contain them already in another form: every entry is absolute.
func (n *notes) save(c *state.Checkpoint) {
	for k, v := range n.corrected {
		c.SetCorrected(k.book.number, k.key, k.meter, v)
	}
	for k, seqs := range n.corrections {
		for _, seq := range seqs {
			c.AddCorrection(k.book.number, k.key, seq)
		}
	}
	for k, by := range n.reverted {
		c.SetReverted(k.book.number, k.seq, by)
	}
	for k, onTime := range n.members {
		c.SetMember(k.book.number, k.id, k.generation, k.member, onTime)
	}
	for k, e := range n.entities {
		c.SetEntity(k.book.number, e)
	}
	for k, r := range n.requests {
		c.SetRequest(k.book.number, k.key, r.seq, r.expires)
	}
	for b, rows := range n.changes {
		for i := range rows {
			c.SetAudit(b.number, &rows[i])
		}
	}
}
