// Package properties owns the canonical text of an event's properties: a flat JSON object that is written in exactly
// one way, so that equal properties are equal strings. Fingerprints, derived keys and stored rows all use this text.
//
// Members are sorted by the bytes of their names and written without white space. A string escapes the quote, the
// backslash and, as \u00xx in lower case, what is below U+0020; all else stands as UTF-8. A number is a plain decimal
// without exponent, superfluous zeros or negative zero. No members at all is the empty string.
//
// The package writes and reads that text. It never parses JSON as clients send it; that is the decoders' work.
package properties

import (
	"slices"
	"strings"
)

// MaxMembers bounds the members of one event's properties: more are a document, not the attributes of a fact.
const MaxMembers = 64

// Kind is the type of a property's value.
type Kind uint8

// The kinds of values.
const (
	String Kind = iota + 1
	Number
	Bool
	Null
)

// Value is a property's value. Text is the decoded string, the canonical number, or true, false or null.
type Value struct {
	Kind Kind
	Text string
}

// Member is one property.
type Member struct {
	Name  string
	Value Value
}

// Append writes the canonical text of the members to dst. It sorts them in place. The names must be distinct, strings
// valid UTF-8 and numbers canonical (AppendNumber).
func Append(dst []byte, members []Member) []byte {
	if len(members) == 0 {
		return dst
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	separator := byte('{')
	for _, m := range members {
		dst = append(dst, separator)
		dst = AppendString(dst, m.Name)
		dst = append(dst, ':')
		if m.Value.Kind == String {
			dst = AppendString(dst, m.Value.Text)
		} else {
			dst = append(dst, m.Value.Text...)
		}
		separator = ','
	}
	return append(dst, '}')
}
