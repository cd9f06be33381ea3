// Package entity says what an entity is: anything in a tenant's ledger that is neither a usage event nor an account
// entry, such as a meter, an API key or a closed period. Each kind of entity is declared once, with its codec and
// the terms by which it is found. Stores keep states and terms as bytes and know no kind.
package entity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// State is an entity as a change row carries it. The zero value is a change that leaves no state behind.
type State struct {
	Kind    string
	ID      string // within its kind; never empty
	Version uint8  // of the codec that wrote Data
	// Critical says that totals or decisions depend on the entity: a build that does not know it must not serve.
	Critical bool
	Data     []byte // a JSON object
}

// IsZero reports whether there is no state.
func (s *State) IsZero() bool { return s.Kind == "" }

// Entity is a state and the row that left it behind.
type Entity struct {
	State
	Seq uint64
	At  calendar.Micros // when the row was committed
}

// Clone gives the entity memory of its own: that of a row may be a buffer's or a caller's.
func (e Entity) Clone() Entity {
	e.Kind, e.ID, e.Data = strings.Clone(e.Kind), strings.Clone(e.ID), bytes.Clone(e.Data)
	return e
}

// Term is a value of an index by which an entity is found, such as the plan of a customer.
type Term struct{ Index, Value string }

// Limits of what stores keep. Values are UTF-8 without NUL.
const (
	MaxKind  = 32
	MaxID    = 1024
	MaxIndex = 32
	MaxValue = 512
	MaxTerms = 16
)

// Kind declares a kind of entity. Name, Version, ID, Encode and Decode are required.
type Kind[T any] struct {
	Name    string
	Version uint8 // of what Encode writes; it starts at 1
	// Critical kinds are those that totals or decisions depend on.
	Critical bool
	// Resident kinds are few, and every decision needs them: stores hold them decoded, and a change of one makes
	// every node read them again.
	Resident bool
	// Unkept kinds are folded where their row stands and never asked for again: stores keep no entity.
	Unkept bool

	ID     func(v *T) string
	Encode func(v *T) []byte
	// Decode reads what Encode of this version or an earlier one wrote. What the row says (its number and time) is
	// filled in from the entity.
	Decode func(e *Entity) (T, error)
	// Terms are the terms that the entity is found by; nil: none.
	Terms func(v *T) []Term
	// Expires is when the entity may be forgotten; nil: never. A kind that expires has no terms.
	Expires func(v *T) calendar.Micros
}

// State is the state that a change to v carries.
func (k *Kind[T]) State(v *T) State {
	return State{Kind: k.Name, ID: k.ID(v), Version: k.Version, Critical: k.Critical, Data: k.Encode(v)}
}

// Read decodes an entity of this kind. Errors: Unavailable (a newer build wrote it).
func (k *Kind[T]) Read(e *Entity) (T, error) {
	var none T
	if e.Kind != k.Name {
		return none, fmt.Errorf("read %s %q: it is of kind %q", k.Name, e.ID, e.Kind)
	}
	if e.Version > k.Version {
		return none, newer(e)
	}
	v, err := k.Decode(e)
	if err != nil {
		return none, fmt.Errorf("decode %s %q of row %d: %w", k.Name, e.ID, e.Seq, err)
	}
	return v, nil
}

// ReadIf decodes an entity if it is of this kind, else it returns nil.
func (k *Kind[T]) ReadIf(e *Entity) (*T, error) {
	if e.Kind != k.Name {
		return nil, nil //nolint:nilnil // another kind is no error
	}
	v, err := k.Read(e)
	return &v, err
}

// newer refuses what another build wrote. It is coded here because nobody above can say it better: the database, the
// disk and every other ledger are well, and only a newer build helps.
func newer(e *Entity) error {
	return problem.New(problem.Unavailable,
		"a newer build of tallystick wrote row %d of this ledger: it has version %d of kind %s, which this build does "+
			"not know and which totals or decisions depend on; upgrade this node", e.Seq, e.Version, e.Kind)
}

// Shape writes a JSON shape of plain fields, which cannot fail to encode. It is for the codecs of kinds.
func Shape(shape any) []byte {
	b, err := json.Marshal(shape)
	if err != nil {
		panic(fmt.Sprintf("entity: a shape of plain fields does not encode: %v", err))
	}
	return b
}
