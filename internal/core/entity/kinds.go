package entity

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/calendar"
)

// Declaration is a kind without its type, as stores use it.
type Declaration struct {
	Name     string
	Version  uint8
	Critical bool
	Resident bool
	Unkept   bool

	read func(e *Entity) (terms []Term, expires calendar.Micros, err error)
}

// Declare takes the type away.
func (k *Kind[T]) Declare() Declaration {
	return Declaration{k.Name, k.Version, k.Critical, k.Resident, k.Unkept,
		func(e *Entity) ([]Term, calendar.Micros, error) {
			if k.Terms == nil && k.Expires == nil {
				return nil, 0, nil
			}
			v, err := k.Read(e)
			if err != nil {
				return nil, 0, err
			}
			var terms []Term
			var expires calendar.Micros
			if k.Terms != nil {
				terms = k.Terms(&v)
			}
			if k.Expires != nil {
				expires = k.Expires(&v)
			}
			return terms, expires, nil
		}}
}

// Kinds are the kinds that a build knows. It is immutable.
type Kinds struct {
	byName map[string]*Declaration
	order  []*Declaration
}

// NewKinds collects declarations. It panics when two have one name: that is an error of the build.
func NewKinds(declared ...Declaration) *Kinds {
	ks := &Kinds{byName: map[string]*Declaration{}}
	for i := range declared {
		d := &declared[i]
		if d.Name == "" || len(d.Name) > MaxKind || d.Version == 0 || ks.byName[d.Name] != nil {
			panic(fmt.Sprintf("entity: kind %q is declared twice, or without a name or a version", d.Name))
		}
		ks.byName[d.Name] = d
		ks.order = append(ks.order, d)
	}
	return ks
}

// With returns these kinds and more.
func (ks *Kinds) With(more ...Declaration) *Kinds {
	all := make([]Declaration, 0, len(ks.order)+len(more))
	for _, d := range ks.order {
		all = append(all, *d)
	}
	return NewKinds(append(all, more...)...)
}

// Find returns a declaration, or nil.
func (ks *Kinds) Find(name string) *Declaration { return ks.byName[name] }

// All lists the declarations.
func (ks *Kinds) All() []*Declaration { return ks.order }

// Knows reports whether this build can read a state.
func (ks *Kinds) Knows(s *State) bool {
	d := ks.byName[s.Kind]
	return d != nil && s.Version <= d.Version
}

// Check refuses a state that this build must not serve without: it does not know it, and totals or decisions depend
// on it. Errors: Unavailable.
func (ks *Kinds) Check(e *Entity) error {
	if e.Critical && !ks.Knows(&e.State) {
		return newer(e)
	}
	return nil
}

// IsResident reports whether stores hold the entity decoded.
func (ks *Kinds) IsResident(kind string) bool {
	d := ks.byName[kind]
	return d != nil && d.Resident
}

// Entry is how a store keeps an entity.
type Entry struct {
	Keep    bool            // false: nothing is kept
	Indexed uint8           // version of the declaration that the terms are of; 0: this build does not know the kind
	Terms   []Term          // by which it is found
	Expires calendar.Micros // when it may be forgotten; 0: never
}

// Entry says how an entity is kept. One that this build does not know is kept without terms. Errors: Unavailable (see
// Check), and what makes it impossible to keep.
func (ks *Kinds) Entry(e *Entity) (Entry, error) {
	if err := ks.Check(e); err != nil {
		return Entry{}, err
	}
	if err := checkNames(e); err != nil {
		return Entry{}, err
	}
	if !ks.Knows(&e.State) {
		return Entry{Keep: true}, nil
	}
	d := ks.byName[e.Kind]
	if d.Unkept {
		return Entry{}, nil
	}
	terms, expires, err := d.read(e)
	if err != nil {
		return Entry{}, err
	}
	if err := checkTerms(e, terms, expires); err != nil {
		return Entry{}, err
	}
	return Entry{Keep: true, Indexed: d.Version, Terms: terms, Expires: expires}, nil
}

func checkNames(e *Entity) error {
	if e.Kind == "" || e.ID == "" || len(e.Kind) > MaxKind || len(e.ID) > MaxID || !clean(e.Kind) || !clean(e.ID) {
		return fmt.Errorf("a state of kind %q with the id %q cannot be kept: names are UTF-8 without NUL, "+
			"1 to %d and %d bytes", e.Kind, e.ID, MaxKind, MaxID)
	}
	return nil
}

func checkTerms(e *Entity, terms []Term, expires calendar.Micros) error {
	if len(terms) > MaxTerms {
		return fmt.Errorf("%s %q has %d terms, at most %d are kept", e.Kind, e.ID, len(terms), MaxTerms)
	}
	if len(terms) > 0 && expires != 0 {
		return fmt.Errorf("%s %q has terms and expires: %w", e.Kind, e.ID, errBoth)
	}
	for _, t := range terms {
		if t.Index == "" || len(t.Index) > MaxIndex || len(t.Value) > MaxValue || !clean(t.Index) || !clean(t.Value) {
			return fmt.Errorf("%s %q has the term %s=%q: names are UTF-8 without NUL, at most %d and %d bytes",
				e.Kind, e.ID, t.Index, t.Value, MaxIndex, MaxValue)
		}
	}
	return nil
}

var errBoth = errors.New("what is forgotten would still be found by its terms")

func clean(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
