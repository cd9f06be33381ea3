package usage

import (
	"cmp"
	"encoding/binary"
	"strings"

	"github.com/tallystick/tallystick/internal/core/properties"
)

// Dimension is something that rows are grouped or filtered by.
type Dimension struct {
	Of   DimensionKind
	Name string // of a property
}

// DimensionKind says where a dimension's values come from.
type DimensionKind uint8

// The kinds of dimensions.
const (
	ByCustomer DimensionKind = iota
	ByResource
	ByProperty
)

const propertyPrefix = "properties."

// ParseDimension reads customer, resource or properties.<name>.
func ParseDimension(text string) (Dimension, bool) {
	switch text {
	case "customer":
		return Dimension{Of: ByCustomer}, true
	case "resource":
		return Dimension{Of: ByResource}, true
	}
	name, ok := strings.CutPrefix(text, propertyPrefix)
	return Dimension{Of: ByProperty, Name: name}, ok && name != ""
}

func (d Dimension) String() string {
	switch d.Of {
	case ByCustomer:
		return "customer"
	case ByResource:
		return "resource"
	}
	return propertyPrefix + d.Name
}

// Label is a row's value in a dimension. Its kind is zero when the row has none, or null.
type Label = properties.Value

// Condition lets rows through whose label reads so, whatever its kind.
type Condition struct {
	Dimension
	Text string
}

func (d Dimension) label(p *Piece, i int) Label {
	text := p.Customer
	switch d.Of {
	case ByResource:
		text = p.Resource[i]
	case ByProperty:
		v, _ := properties.Lookup(p.Properties[i], d.Name)
		if v.Kind == properties.Null {
			return Label{}
		}
		return v
	}
	if text == "" {
		return Label{}
	}
	return Label{Kind: properties.String, Text: text}
}

// outside is the group of rows that the conditions leave out.
const outside = ^uint32(0)

// groups numbers the combinations of labels that rows have.
type groups struct {
	by     []Dimension
	where  []Condition
	labels [][]Label         // by number
	byName map[string]uint32 // the labels, encoded
	buf    []byte
}

func newGroups(by []Dimension, where []Condition) groups {
	return groups{by: by, where: where, byName: map[string]uint32{}}
}

func (g *groups) needs() (resources, properties bool) {
	look := func(d Dimension) {
		resources = resources || d.Of == ByResource
		properties = properties || d.Of == ByProperty
	}
	for _, d := range g.by {
		look(d)
	}
	for _, c := range g.where {
		look(c.Dimension)
	}
	return resources, properties
}

// of finds the groups of a piece's rows: one for all of them, or one for each.
func (g *groups) of(p *Piece, rows *[]uint32) (whole uint32, byRow bool) {
	resources, properties := g.needs()
	if !resources && !properties {
		if len(p.Time) == 0 {
			return 0, false
		}
		return g.number(p, 0), false
	}
	out := (*rows)[:0]
	for i := range p.Time {
		if i > 0 && (!resources || p.Resource[i] == p.Resource[i-1]) &&
			(!properties || p.Properties[i] == p.Properties[i-1]) {
			out = append(out, out[i-1])
			continue
		}
		out = append(out, g.number(p, i))
	}
	*rows = out
	return 0, true
}

// number finds the group of one row, or makes it.
func (g *groups) number(p *Piece, i int) uint32 {
	for _, c := range g.where {
		if l := c.label(p, i); l.Kind == 0 || l.Text != c.Text {
			return outside
		}
	}
	b := g.buf[:0]
	for _, d := range g.by {
		l := d.label(p, i)
		b = binary.AppendUvarint(append(b, byte(l.Kind)), uint64(len(l.Text)))
		b = append(b, l.Text...)
	}
	g.buf = b
	if n, ok := g.byName[string(b)]; ok {
		return n
	}
	labels := make([]Label, len(g.by))
	for j, d := range g.by {
		labels[j] = d.label(p, i)
		labels[j].Text = strings.Clone(labels[j].Text)
	}
	n := uint32(len(g.labels))
	g.labels = append(g.labels, labels)
	g.byName[string(b)] = n
	return n
}

// compareLabels orders groups label by label; no label comes first, then strings, numbers and booleans, each by their
// bytes.
func compareLabels(a, b []Label) int {
	for i := range a {
		if c := cmp.Or(cmp.Compare(a[i].Kind, b[i].Kind), strings.Compare(a[i].Text, b[i].Text)); c != 0 {
			return c
		}
	}
	return 0
}
