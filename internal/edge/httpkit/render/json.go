// Package render writes the documents that HTTP edges answer with: members of JSON objects and cells of CSV.
//
// Documents are written by hand: the order of members is fixed, decimals are never floats, and nothing reflects. Each
// function appends to a buffer. It knows values, and no shape of any API.
package render

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/properties"
)

// Name appends the name of the object's next member, after a comma unless it is the first.
func Name(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

// Text appends a JSON string. Details quote what callers sent, which need not be UTF-8.
func Text(b []byte, s string) []byte {
	return properties.AppendString(b, strings.ToValidUTF8(s, "\uFFFD"))
}

// String appends a member that is a string.
func String(b []byte, name, value string) []byte { return Text(Name(b, name), value) }

// Null appends a member that is null.
func Null(b []byte, name string) []byte { return append(Name(b, name), "null"...) }

// Optional appends a string, or null for an empty one.
func Optional(b []byte, name, value string) []byte {
	if value == "" {
		return Null(b, name)
	}
	return String(b, name, value)
}

// Present appends a string, or nothing for an empty one.
func Present(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return String(b, name, value)
}

// Object appends a member that is a document of its own, an empty one for none.
func Object(b []byte, name, document string) []byte {
	if document == "" {
		document = "{}"
	}
	return append(Name(b, name), document...)
}

// Strings appends a member that is an array of strings.
func Strings(b []byte, name string, values []string) []byte {
	b = append(Name(b, name), '[')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = Text(b, v)
	}
	return append(b, ']')
}

// Bool appends a member that is true or false.
func Bool(b []byte, name string, v bool) []byte {
	return strconv.AppendBool(Name(b, name), v)
}

// Int appends a member that is a whole number.
func Int(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(Name(b, name), n, 10)
}

// Uint appends a member that is a whole number without a sign.
func Uint(b []byte, name string, n uint64) []byte {
	return strconv.AppendUint(Name(b, name), n, 10)
}

// Amount appends a decimal, as a string.
func Amount(b []byte, name string, a amount.Amount) []byte {
	b = append(Name(b, name), '"')
	return append(a.AppendText(b), '"')
}

// AmountIf appends a decimal, or null when it means nothing.
func AmountIf(b []byte, name string, a amount.Amount, there bool) []byte {
	if !there {
		return Null(b, name)
	}
	return Amount(b, name, a)
}

// Moment appends a time in RFC 3339.
func Moment(b []byte, name string, m calendar.Micros) []byte {
	return String(b, name, m.String())
}

// MomentIf appends a time, or null when it means nothing.
func MomentIf(b []byte, name string, m calendar.Micros, there bool) []byte {
	if !there {
		return Null(b, name)
	}
	return Moment(b, name, m)
}

// Hash appends a hash in hexadecimal digits, or null when there is none.
func Hash(b []byte, name string, hash *[32]byte) []byte {
	if hash == nil {
		return Null(b, name)
	}
	return String(b, name, hex.EncodeToString(hash[:]))
}
