package usage

import (
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/properties"
)

// Catalog is a tenant's meters at one moment, arranged for looking up. It is immutable.
type Catalog struct {
	salt   [32]byte
	slugs  map[string]*meter.Meter
	types  map[string][]*taker // by event type, in slug order
	number map[uint32]*meter.Meter
}

// NewCatalog arranges meters; the salt is the tenant's.
func NewCatalog(salt [32]byte, meters []*meter.Meter) *Catalog {
	c := &Catalog{salt: salt, slugs: map[string]*meter.Meter{}, types: map[string][]*taker{},
		number: map[uint32]*meter.Meter{}}
	for _, m := range meters {
		c.slugs[m.Slug] = m
		c.number[m.Number] = m
		if m.EventType != "" {
			c.types[m.EventType] = append(c.types[m.EventType], newTaker(m))
		}
	}
	for _, ms := range c.types {
		slices.SortFunc(ms, func(a, b *taker) int { return strings.Compare(a.Slug, b.Slug) })
	}
	return c
}

// Slug returns the meter of that slug, or nil.
func (c *Catalog) Slug(slug string) *meter.Meter { return c.slugs[slug] }

// Has reports whether a meter folds so. A tenant without a catalog has none.
func (c *Catalog) Has(a meter.Aggregation) bool {
	if c == nil {
		return false
	}
	for _, m := range c.slugs {
		if m.Aggregation == a {
			return true
		}
	}
	return false
}

// Number returns the meter of that number, or nil. A tenant without a catalog has none.
func (c *Catalog) Number(n uint32) *meter.Meter {
	if c == nil {
		return nil
	}
	return c.number[n]
}

// taker is the meter, which has an event type, as its type feeds it.
func (c *Catalog) taker(m *meter.Meter) *taker {
	takers := c.types[m.EventType]
	return takers[slices.IndexFunc(takers, func(t *taker) bool { return t.Meter == m })]
}

// Feed is one meter that a fact feeds, with the value it takes.
type Feed struct {
	Meter  *meter.Meter
	Value  amount.Amount
	Member string
}

// Fact is an event that passed every check that needs no history: its key is known and its meters are found.
type Fact struct {
	Event   *Event
	Key     Key
	Refusal *problem.Error // set: the event is refused, nothing else is
	Bucket  bool           // the key has a time bucket: other content is no conflict
	one     [1]Feed
	many    []Feed
}

// Feeds lists the fed meters in slug order. A correction's meter is known only with its target.
func (f *Fact) Feeds() []Feed {
	if f.many != nil {
		return f.many
	}
	if f.one[0].Meter == nil {
		return nil
	}
	return f.one[:]
}

// Preparer turns events of one tenant into facts. It serves one goroutine at a time.
type Preparer struct {
	catalog *Catalog
	keys    deriver
}

// NewPreparer works on one state of a tenant's meters.
func NewPreparer(c *Catalog) *Preparer { return &Preparer{catalog: c} }

// Catalog is the state of the meters that the preparer works on.
func (p *Preparer) Catalog() *Catalog { return p.catalog }

// Prepare fills f from e. It may complete e's quantity by the meter's rounding. e must outlive f.
func (p *Preparer) Prepare(e *Event, f *Fact) {
	*f = Fact{Event: e}
	if f.Refusal = e.Check(); f.Refusal != nil {
		return
	}
	if e.Corrects != "" {
		f.Key = Key{ClientSpace, e.ID}
		if e.Unrounded != "" {
			// Whether the meter rounds is known with the target; the content must be the same either way.
			f.Refusal = roundCorrection(e)
		}
		return
	}
	if e.Meter != "" {
		f.Refusal = p.feedMeter(e, f)
	} else {
		f.Refusal = p.feedType(e, f)
	}
	if f.Refusal == nil {
		f.Refusal = p.name(e, f)
		return
	}
	f.Key = p.keyOfRefused(e, f)
}

// keyOfRefused is the key under which a refused event may be in the ledger already: rules may have become stricter
// since it was kept. It is empty when what is wrong with it is a part of the key.
func (p *Preparer) keyOfRefused(e *Event, f *Fact) Key {
	m := p.catalog.slugs[e.Meter]
	if e.ID != "" && (m == nil || m.KeyPolicy == meter.ClientKey) {
		return Key{ClientSpace, e.ID}
	}
	feeds, takers := f.Feeds(), p.catalog.types[e.Type]
	switch {
	case len(feeds) > 0 && feeds[0].Meter != nil:
		m = feeds[0].Meter
	case len(takers) > 0:
		m = takers[0].Meter // all of a type name facts alike
	default:
		return Key{}
	}
	k, refusal := p.derive(e, m)
	if refusal != nil {
		return Key{}
	}
	return k
}

func (p *Preparer) feedMeter(e *Event, f *Fact) *problem.Error {
	m := p.catalog.slugs[e.Meter]
	if m == nil {
		return &problem.Error{Code: problem.UnknownMeter,
			Detail: "no meter " + quoted(e.Meter) + ": create it with POST /v1/meters",
			Fields: []problem.Field{{Path: "meter", Message: "unknown"}}}
	}
	if e.Unrounded != "" {
		if p := round(e, m.Rounding); p != nil {
			return p
		}
	}
	if len(m.Filter) > 0 {
		if name := p.catalog.taker(m).mismatch(e); name != "" {
			return problem.At(name, "meter %s does not take this: its filter names other values", m.Slug)
		}
	}
	var refusal *problem.Error
	f.one[0], refusal = feed(e, m)
	return refusal
}

func (p *Preparer) feedType(e *Event, f *Fact) *problem.Error {
	takers := p.catalog.types[e.Type]
	if e.Unrounded != "" {
		if p := roundForAll(e, takers); p != nil {
			return p
		}
	}
	if len(takers) > 1 {
		f.many = make([]Feed, 0, len(takers))
	}
	fed := false
	for _, t := range takers {
		if !t.takes(e) {
			continue
		}
		fed = true
		one, refusal := feed(e, t.Meter)
		if len(takers) == 1 {
			f.one[0] = one
		} else {
			f.many = append(f.many, one)
		}
		if refusal != nil {
			return refusal
		}
	}
	if !fed {
		return fedNone(e, takers)
	}
	return nil
}

// name gives the fact its key. With a type there are several meters, all of the plain client policy.
func (p *Preparer) name(e *Event, f *Fact) *problem.Error {
	m := f.Feeds()[0].Meter
	if m.KeyPolicy == meter.ClientKey && e.ID != "" {
		f.Key = Key{ClientSpace, e.ID}
		return nil
	}
	f.Bucket = m.KeyBucket != 0
	var refusal *problem.Error
	f.Key, refusal = p.derive(e, m)
	return refusal
}

func (p *Preparer) derive(e *Event, m *meter.Meter) (Key, *problem.Error) {
	if p.keys.mac == nil {
		p.keys = newDeriver(p.catalog.salt)
	}
	return p.keys.derive(e, m)
}

func inexact() *problem.Error {
	return problem.At("quantity", "%v; a meter with rounding half_even would round it", amount.ErrPrecision)
}

func round(e *Event, r meter.Rounding) *problem.Error {
	if r != meter.HalfEven {
		return inexact()
	}
	q, err := amount.ParseRounded(e.Unrounded)
	if err != nil {
		return problem.At("quantity", "%v", err)
	}
	// The sign is the text's: what rounds to zero from below was negative all the same.
	if strings.HasPrefix(e.Unrounded, "-") {
		return problem.At("quantity", "must not be negative; a correction names the fact it corrects in corrects")
	}
	e.Quantity = q
	return checkMagnitude("quantity", q)
}

// roundForAll rounds an event of a type. The quantity belongs to the fact, not to one meter: it is rounded only if all
// that take the event would.
func roundForAll(e *Event, takers []*taker) *problem.Error {
	rounding, taken := meter.HalfEven, false
	for _, t := range takers {
		if t.takes(e) {
			rounding, taken = min(rounding, t.Rounding), true
		}
	}
	if !taken {
		return nil
	}
	return round(e, rounding)
}

func roundCorrection(e *Event) *problem.Error {
	q, err := amount.ParseRounded(e.Unrounded)
	if err != nil {
		return problem.At("quantity", "%v", err)
	}
	if q.IsZero() {
		return problem.At("quantity", "a correction that rounds to zero changes nothing")
	}
	e.Quantity = q
	return checkMagnitude("quantity", q)
}

// checkQuantity refuses a quantity that the meter would not bill: to keep it would look as if it had counted.
func checkQuantity(e *Event, m *meter.Meter) *problem.Error {
	switch {
	case m.ValueProperty != "":
		return problem.At("quantity", "leave it out: meter %s takes its value from %s", m.Slug,
			meter.PropertyField+m.ValueProperty)
	case m.Aggregation == meter.Count && e.Quantity != amount.One:
		return problem.At("quantity", "must be 1 or left out: meter %s counts events", m.Slug)
	}
	return nil
}

// feed takes the meter's value out of the event.
func feed(e *Event, m *meter.Meter) (Feed, *problem.Error) {
	f := Feed{Meter: m, Value: e.Quantity}
	if e.Has(GivenQuantity) {
		if p := checkQuantity(e, m); p != nil {
			return f, p
		}
	}
	if m.UniqueProperty != "" {
		v, ok := properties.Lookup(e.Properties, m.UniqueProperty)
		if !ok || v.Kind == properties.Null {
			return f, problem.At(meter.PropertyField+m.UniqueProperty, "required by meter %s", m.Slug)
		}
		// Kind and text together: the string "1" and the number 1 are two members.
		f.Member = string(rune('0'+v.Kind)) + v.Text
		return f, nil
	}
	if m.ValueProperty == "" {
		return f, nil
	}
	path := meter.PropertyField + m.ValueProperty
	v, ok := properties.Lookup(e.Properties, m.ValueProperty)
	if !ok {
		return f, problem.At(path, "required by meter %s: its value is taken from there", m.Slug)
	}
	if v.Kind != properties.Number && v.Kind != properties.String {
		return f, problem.At(path, "must be a number")
	}
	parse := amount.Parse
	if m.Rounding == meter.HalfEven {
		parse = amount.ParseRounded
	}
	q, err := parse(v.Text)
	if err != nil {
		return f, problem.At(path, "%v", err)
	}
	if q.Sign() < 0 || q.IsZero() && strings.HasPrefix(v.Text, "-") && strings.ContainsAny(v.Text, "123456789") {
		return f, problem.At(path, "must not be negative")
	}
	f.Value = q
	return f, checkMagnitude(path, q)
}

func quoted(s string) string {
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "") + "…"
	}
	return `"` + s + `"`
}
