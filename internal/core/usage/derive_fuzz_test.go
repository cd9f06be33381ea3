package usage

import (
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/properties"
)

// keySettings are the shapes of keys that the fuzzer chooses from.
var keySettings = []meter.Meter{
	{},
	{KeyBucket: 5 * time.Second},
	{KeyFields: []string{"customer", "meter", "time"}},
	{KeyFields: []string{"resource", "properties.p"}},
	{KeyFields: []string{"properties.p", "resource", "customer", "properties.q"}},
	{KeyFields: []string{"meter", "customer", "resource", "properties.p", "time"}, KeyBucket: 7 * time.Microsecond},
}

// facet is one key field's value as a person would compare it.
type facet struct {
	text   string
	number int64
	given  bool
	kind   properties.Kind
}

func facets(e *Event, m *meter.Meter) [5]facet {
	var out [5]facet
	for i, f := range m.Key() {
		switch f {
		case "meter":
			out[i].text = e.Meter + e.Type // one of them is empty
		case "customer":
			out[i].text = e.Customer
		case "resource":
			out[i] = facet{text: e.Resource, given: e.Has(GivenResource)}
		case "time":
			out[i].number = int64(e.Time)
			if m.KeyBucket != 0 {
				out[i].number /= m.KeyBucket.Microseconds()
			}
		default:
			v, ok := properties.Lookup(e.Properties, strings.TrimPrefix(f, meter.PropertyField))
			out[i] = facet{text: v.Text, given: ok, kind: v.Kind}
		}
	}
	return out
}

func keyed(name, customer, resource, property string, at int64, shape byte) Event {
	e := Event{Customer: customer, Time: calendar.Micros(uint64(at) % uint64(calendar.MaxMicros)),
		Given: GivenTime | GivenCustomer}
	if shape&1 == 0 {
		e.Meter, e.Given = name, e.Given|GivenMeter
	} else {
		e.Type, e.Given = name, e.Given|GivenType
	}
	if shape&2 != 0 {
		e.Resource, e.Given = resource, e.Given|GivenResource
	}
	value := properties.Value{Kind: properties.String, Text: property}
	if shape&4 != 0 {
		value = properties.Value{Kind: properties.Null, Text: "null"}
	}
	switch shape >> 3 & 3 {
	case 1:
		e.Properties = string(properties.Append(nil, []properties.Member{{Name: "p", Value: value}}))
	case 2:
		e.Properties = string(properties.Append(nil, []properties.Member{{Name: "q", Value: value}}))
	case 3:
		e.Properties = string(properties.Append(nil,
			[]properties.Member{{Name: "p", Value: value}, {Name: "q", Value: value}}))
	}
	return e
}

// Two events have one derived key exactly when all key fields are equal. The second event takes from the other
// arguments only what a bit of differ says, so that the fuzzer meets near misses; the third has the same bytes with the
// boundary between two fields shifted.
func FuzzDerivedKey(f *testing.F) {
	f.Add(byte(0), byte(0), "ab", "c", "r", "x", int64(1), byte(2), "a", "bc", "", "y", int64(2), byte(0), byte(1))
	f.Add(byte(3), byte(0xff), "", "", "", "", int64(0), byte(0), "", "", "", "", int64(0), byte(2), byte(0))
	f.Add(byte(5), byte(8), "m", "c", "r", "1", int64(13), byte(0x1f), "m", "c", "r", "1", int64(14), byte(0x1b),
		byte(0))
	f.Fuzz(func(t *testing.T, setting, differ byte, m1, c1, r1, p1 string, t1 int64, s1 byte, m2, c2, r2, p2 string,
		t2 int64, s2 byte, cut byte) {
		m := &keySettings[int(setting)%len(keySettings)]
		a := keyed(m1, c1, r1, p1, t1, s1)
		for i, part := range []struct{ own, other *string }{{&m1, &m2}, {&c1, &c2}, {&r1, &r2}, {&p1, &p2}} {
			if differ>>i&1 == 0 {
				*part.other = *part.own
			}
		}
		if differ>>4&1 == 0 {
			t2 = t1
		}
		if differ>>5&1 == 0 {
			s2 = s1
		}
		b := keyed(m2, c2, r2, p2, t2, s2)
		checkKeys(t, m, &a, &b)

		bytes := m1 + c1
		at := 0
		if len(bytes) > 0 {
			at = int(cut) % (len(bytes) + 1)
		}
		shifted := keyed(bytes[:at], bytes[at:], r1, p1, t1, s1)
		checkKeys(t, m, &a, &shifted)
	})
}

func checkKeys(t *testing.T, m *meter.Meter, a, b *Event) {
	t.Helper()
	d := newDeriver([32]byte{1})
	ka, pa := d.derive(a, m)
	kb, pb := d.derive(b, m)
	if pa != nil || pb != nil {
		t.Fatalf("refused: %v, %v", pa, pb)
	}
	if ka.Space != DerivedSpace || len(ka.Name) != 43 || KeyOfID(ka.ID()) != ka {
		t.Fatalf("key %+v", ka)
	}
	if same := facets(a, m) == facets(b, m); same != (ka == kb) {
		t.Fatalf("key fields equal: %v, keys equal: %v\n%+v\n%+v\nfields %v", same, ka == kb, a, b, m.Key())
	}
	other := newDeriver([32]byte{2})
	if ko, _ := other.derive(a, m); ko == ka {
		t.Fatal("two tenants derive one key")
	}
}

// The encoding is for ever: a key that changed would count every retried fact twice. The names were computed apart from
// this code, as HMAC-SHA256 over version 1 and, for each field, its name and value behind their lengths.
func TestDerivedKeysNeverChange(t *testing.T) {
	e := keyed("calls", "c1", "r", "/a", 1_763_200_003_000_001, 2|1<<3)
	for _, c := range []struct {
		meter meter.Meter
		want  string
	}{
		{meter.Meter{}, "seeqlSjiZqDhXASVU7jfhwtt7Wf5stLnx5XbX_rugJo"},
		{meter.Meter{KeyBucket: 5 * time.Second}, "HYD-kMjervp6Q6t6gA5nsjnFhCEcLszWuJWXvj4zCrY"},
		{meter.Meter{KeyFields: []string{"meter", "properties.p", "properties.q"}},
			"AcBKk2Juxf8ka1QoVfnCO7mwIkAr4BZ75ns4Ts-HYm8"},
	} {
		d := newDeriver([32]byte{1})
		k, p := d.derive(&e, &c.meter)
		if p != nil || k.Name != c.want {
			t.Errorf("fields %v: key %s, %v; want %s", c.meter.Key(), k.Name, p, c.want)
		}
	}
}

// sent is what a client said, as a person would compare it.
type sent struct {
	id, meter, kind, customer, resource, properties, corrects, reason string
	hasMeter, hasKind, hasCustomer, hasResource, hasTime              bool
	time                                                              calendar.Micros
	quantity                                                          amount.Amount
}

func sentBy(e *Event, space Space) sent {
	s := sent{properties: e.Properties, quantity: e.Quantity, corrects: e.Corrects}
	if space == ClientSpace {
		s.id = e.ID
	}
	if s.corrects != "" {
		s.reason = e.Reason
	}
	if s.hasMeter = e.Has(GivenMeter); s.hasMeter {
		s.meter = e.Meter
	}
	if s.hasKind = e.Has(GivenType); s.hasKind {
		s.kind = e.Type
	}
	if s.hasCustomer = e.Has(GivenCustomer); s.hasCustomer {
		s.customer = e.Customer
	}
	if s.hasResource = e.Has(GivenResource); s.hasResource {
		s.resource = e.Resource
	}
	if s.hasTime = e.Has(GivenTime); s.hasTime {
		s.time = e.Time
	}
	return s
}

// split cuts a text into an event's strings at the given places, so that the fuzzer can move bytes from one to the
// next.
func split(text string, cuts [7]byte) (parts [8]string) {
	for i, c := range cuts {
		at := int(c) % (len(text) + 1)
		parts[i], text = text[:at], text[at:]
	}
	parts[7] = text
	return parts
}

// Two events of one key have the same content exactly when what their clients said is equal. Both are cut from the same
// text, at places that differ, or not, by one.
func FuzzSameContent(f *testing.F) {
	f.Add("abcdefghijkl", []byte{1, 1, 1, 1, 1, 1, 1}, byte(0), int64(5), int64(5), byte(0x7f), byte(0x7f), true)
	f.Add("abcdefghijkl", []byte{1, 1, 1, 1, 1, 1, 1}, byte(2), int64(5), int64(6), byte(0x7f), byte(0x7d), false)
	f.Add("", []byte{}, byte(0), int64(0), int64(0), byte(0), byte(GivenResource), true)
	f.Fuzz(func(t *testing.T, text string, places []byte, move byte, n1, n2 int64, g1, g2 byte, client bool) {
		var cuts [7]byte
		copy(cuts[:], places)
		space := DerivedSpace
		if client {
			space = ClientSpace
		}
		a := worded(split(text, cuts), n1, g1)
		if i := int(move) % 8; i < len(cuts) {
			cuts[i]++
		}
		b := worded(split(text, cuts), n2, g2)
		c := worded(split(text, cuts), n2, g2)
		for _, pair := range [][2]*Event{{&a, &b}, {&b, &a}, {&b, &c}} {
			want := sentBy(pair[0], space) == sentBy(pair[1], space)
			if got := SameContent(pair[0], pair[1], space); got != want {
				t.Fatalf("same content: %v, want %v, of\n%+v\n%+v", got, want, *pair[0], *pair[1])
			}
		}
	})
}

func worded(p [8]string, n int64, given byte) Event {
	return Event{ID: p[0], Meter: p[1], Type: p[2], Customer: p[3], Resource: p[4], Properties: p[5], Corrects: p[6],
		Reason:   p[7],
		Quantity: amount.FromInt(n), Time: calendar.Micros(n), Given: Given(given) & 0x7f}
}
