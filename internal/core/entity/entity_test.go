package entity_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/problem"
)

type thing struct {
	Name   string
	Colors []string
	Until  calendar.Micros
}

func kindOf(change func(*entity.Kind[thing])) *entity.Kind[thing] {
	k := &entity.Kind[thing]{
		Name: "thing", Version: 2,
		ID:     func(v *thing) string { return v.Name },
		Encode: func(v *thing) []byte { return entity.Shape(v) },
		Decode: func(e *entity.Entity) (v thing, err error) { return v, json.Unmarshal(e.Data, &v) },
		Terms: func(v *thing) (out []entity.Term) {
			for _, c := range v.Colors {
				out = append(out, entity.Term{Index: "color", Value: c})
			}
			return out
		},
	}
	change(k)
	return k
}

// Given a state, then it is kept as its kind says, or refused with the reason.
func TestEntry(t *testing.T) {
	long := strings.Repeat("x", entity.MaxValue+1)
	for name, c := range map[string]struct {
		kind   func(*entity.Kind[thing])
		v      thing
		change func(*entity.State)
		want   entity.Entry
		err    string
	}{
		"with a term": {v: thing{Colors: []string{"red"}}, want: entity.Entry{Keep: true, Indexed: 2}},
		"not kept":    {kind: func(k *entity.Kind[thing]) { k.Unkept = true }},
		"of an older one": {change: func(s *entity.State) { s.Version = 1 },
			want: entity.Entry{Keep: true, Indexed: 2}},
		"of a newer one":     {change: func(s *entity.State) { s.Version = 3 }, want: entity.Entry{Keep: true}},
		"of an unknown kind": {change: func(s *entity.State) { s.Kind = "other" }, want: entity.Entry{Keep: true}},
		"critical and newer": {change: func(s *entity.State) { s.Critical, s.Version = true, 3 }, err: "newer build"},
		"critical and unknown": {
			change: func(s *entity.State) { s.Critical, s.Kind = true, "other" },
			err:    "kind other, which this build does not know",
		},
		"without an id":      {change: func(s *entity.State) { s.ID = "" }, err: "cannot be kept"},
		"with NUL in its id": {change: func(s *entity.State) { s.ID = "a\x00" }, err: "cannot be kept"},
		"no JSON":            {change: func(s *entity.State) { s.Data = []byte("{") }, err: "decode thing"},
		"a long value":       {v: thing{Colors: []string{long}}, err: "has the term"},
		"many terms":         {v: thing{Colors: make([]string, entity.MaxTerms+1)}, err: "17 terms"},
		"expires, and has terms": {
			kind: func(k *entity.Kind[thing]) { k.Expires = func(v *thing) calendar.Micros { return v.Until } },
			v:    thing{Colors: []string{"red"}, Until: 5}, err: "still be found",
		},
	} {
		if c.kind == nil {
			c.kind = func(*entity.Kind[thing]) {}
		}
		if c.v.Name == "" {
			c.v.Name = "a"
		}
		k := kindOf(c.kind)
		e := entity.Entity{State: k.State(&c.v), Seq: 7}
		if c.change != nil {
			c.change(&e.State)
		}
		got, err := entity.NewKinds(k.Declare()).Entry(&e)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			if strings.HasPrefix(name, "critical") && !problem.Is(err, problem.Unavailable) {
				t.Errorf("%s is no outage: %v", name, err)
			}
			continue
		}
		if err != nil || got.Keep != c.want.Keep || got.Indexed != c.want.Indexed {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Given two declarations of one name, then the build does not start.
func TestOneNameOneKind(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a kind was declared twice")
		}
	}()
	k := kindOf(func(*entity.Kind[thing]) {})
	entity.NewKinds(k.Declare()).With(k.Declare())
}
