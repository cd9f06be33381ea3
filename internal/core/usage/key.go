package usage

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"strings"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/properties"
)

// Space separates the names that clients choose from those that the server derives.
type Space byte

// The name spaces.
const (
	ClientSpace  Space = 'c'
	DerivedSpace Space = 'd'
)

// Key is a fact's identity within its tenant.
type Key struct {
	Space Space
	Name  string
}

// ID is how the contract writes the key.
func (k Key) ID() string {
	if k.Space == DerivedSpace {
		return DerivedPrefix + k.Name
	}
	return k.Name
}

// KeyOfID reads what ID wrote.
func KeyOfID(id string) Key {
	if name, ok := strings.CutPrefix(id, DerivedPrefix); ok {
		return Key{DerivedSpace, name}
	}
	return Key{ClientSpace, id}
}

// keyVersion starts the canonical encoding of key fields, so that another encoding can never meet an old key by chance.
const keyVersion = 1

// deriver makes derived keys of one tenant. The keyed state is made once: that costs more than a key.
type deriver struct {
	mac hash.Hash
	buf []byte
}

func newDeriver(salt [32]byte) deriver { return deriver{mac: hmac.New(sha256.New, salt[:])} }

// derive encodes each field as its name and its value, each behind its length; an absent resource or property is a
// value of its own, distinct from an empty one.
func (d *deriver) derive(e *Event, m *meter.Meter) (Key, *problem.Error) {
	if !e.Has(GivenTime) {
		return Key{}, problem.At("time", "required: without an id the key is derived from the event, and the time is "+
			"part of it")
	}
	b := append(d.buf[:0], keyVersion)
	for _, f := range m.Key() {
		b = appendString(b, f)
		switch f {
		case "meter":
			if e.Meter != "" {
				b = appendString(b, e.Meter)
			} else {
				b = appendString(b, e.Type)
			}
		case "customer":
			b = appendString(b, e.Customer)
		case "resource":
			b = appendOptional(b, e.Resource, e.Has(GivenResource))
		case "time":
			b = binary.AppendVarint(b, int64(bucket(e.Time, m)))
		default:
			v, ok := properties.Lookup(e.Properties, strings.TrimPrefix(f, meter.PropertyField))
			b = append(b, byte(v.Kind))
			b = appendOptional(b, v.Text, ok)
		}
	}
	d.buf = b
	d.mac.Reset()
	d.mac.Write(b)
	var sum [sha256.Size]byte
	return Key{DerivedSpace, base64.RawURLEncoding.EncodeToString(d.mac.Sum(sum[:0]))}, nil
}

func bucket(t calendar.Micros, m *meter.Meter) calendar.Micros {
	if m.KeyBucket == 0 {
		return t
	}
	return t - t%calendar.Micros(m.KeyBucket.Microseconds())
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendOptional(b []byte, s string, given bool) []byte {
	if !given {
		return append(b, 0)
	}
	return appendString(append(b, 1), s)
}
