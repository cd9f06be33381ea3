package httpapi

import (
	"encoding/hex"
	"strconv"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
)

// Answers are written by hand: the order of fields is fixed, decimals are never floats, and nothing reflects.

func appendName(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

func appendString(b []byte, name, value string) []byte { return appendText(appendName(b, name), value) }

func appendNull(b []byte, name string) []byte { return append(appendName(b, name), "null"...) }

// appendOptional writes null for what is not there.
func appendOptional(b []byte, name, value string) []byte {
	if value == "" {
		return appendNull(b, name)
	}
	return appendString(b, name, value)
}

// appendPresent leaves out what is not there.
func appendPresent(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendString(b, name, value)
}

func appendStrings(b []byte, name string, values []string) []byte {
	b = append(appendName(b, name), '[')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, v)
	}
	return append(b, ']')
}

func appendBool(b []byte, name string, v bool) []byte {
	return strconv.AppendBool(appendName(b, name), v)
}

func appendInt(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(appendName(b, name), n, 10)
}

func appendUint(b []byte, name string, n uint64) []byte {
	return strconv.AppendUint(appendName(b, name), n, 10)
}

func appendAmount(b []byte, name string, a amount.Amount) []byte {
	b = append(appendName(b, name), '"')
	return append(a.AppendText(b), '"')
}

// appendAmountIf writes null when the amount means nothing.
func appendAmountIf(b []byte, name string, a amount.Amount, there bool) []byte {
	if !there {
		return appendNull(b, name)
	}
	return appendAmount(b, name, a)
}

func appendMoment(b []byte, name string, m calendar.Micros) []byte {
	return appendString(b, name, m.String())
}

// appendMomentIf writes null when the moment means nothing.
func appendMomentIf(b []byte, name string, m calendar.Micros, there bool) []byte {
	if !there {
		return appendNull(b, name)
	}
	return appendMoment(b, name, m)
}

func appendHash(b []byte, name string, hash *[32]byte) []byte {
	if hash == nil {
		return appendNull(b, name)
	}
	return appendString(b, name, hex.EncodeToString(hash[:]))
}

func openOrClosed(closed bool) string {
	if closed {
		return "closed"
	}
	return "open"
}
