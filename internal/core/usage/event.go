package usage

import (
	"strings"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// Bounds of one event. They keep a row small enough that a batch of the largest events still fits one commit.
const (
	MaxID         = 255
	MaxName       = 255 // customer, resource, type, meter
	MaxReason     = 1000
	MaxProperties = 4096 // canonical bytes
)

// DerivedPrefix marks the id of a fact whose key the server derived. Client ids may not start with it.
const DerivedPrefix = "key:"

// Given says which optional fields the client stated, so that an absent field stays absent in the content.
type Given uint8

// The fields of Given.
const (
	GivenTime Given = 1 << iota
	GivenQuantity
	GivenMeter
	GivenType
	GivenCustomer
	GivenResource
	GivenProperties
)

// Event is one usage event as a client sent it: decoded, with canonical decimals and properties, not yet judged.
// Its strings may share memory with the request; who keeps them longer copies them.
type Event struct {
	ID         string
	Meter      string // exactly one of Meter and Type is stated, except in a correction
	Type       string
	Customer   string
	Resource   string
	Properties string // canonical JSON object, "" when absent or empty
	Corrects   string // the id of the fact that this one corrects
	Reason     string // of a correction
	// Unrounded is the quantity's text when it has more decimals than an Amount: the meter's rounding decides.
	Unrounded string
	Quantity  amount.Amount // one when absent
	Time      calendar.Micros
	Given     Given
	// Invalid is set by a decoder that found a wrong field; the event is then refused with it.
	Invalid *problem.Error
}

// Has reports whether the client stated all of the fields.
func (e *Event) Has(g Given) bool { return e.Given&g == g }

// maxQuantity is the bound of section 6: |q| < 10^15, so that a counter holds 10^11 of the largest.
var maxQuantity = amount.FromInt(1_000_000_000_000_000)

// Check judges the event's shape: everything that can be said without knowing the meter.
func (e *Event) Check() *problem.Error {
	if e.Invalid != nil {
		return e.Invalid
	}
	if e.Corrects != "" {
		return e.checkCorrection()
	}
	if e.Reason != "" {
		return problem.At("reason", "only a correction has a reason; name the corrected event in corrects")
	}
	switch {
	case e.Meter == "" && e.Type == "":
		return problem.At("meter", "required: name a meter, or a type that feeds meters")
	case e.Meter != "" && e.Type != "":
		return problem.At("type", "state either meter or type, not both")
	case e.Customer == "":
		return problem.At("customer", "required")
	}
	if p := e.checkStrings(); p != nil {
		return p
	}
	if e.Has(GivenTime) && !e.Time.Valid() {
		return problem.At("time", "must lie between 1970 and 9999")
	}
	if e.Quantity.Sign() < 0 {
		return problem.At("quantity", "must not be negative; a correction names the fact it corrects in corrects")
	}
	return checkMagnitude("quantity", e.Quantity)
}

func (e *Event) checkCorrection() *problem.Error {
	if e.ID == "" {
		return problem.At("id", "a correction needs an id of its own")
	}
	if e.Reason == "" {
		return problem.At("reason", "a correction needs a reason")
	}
	if !e.Has(GivenQuantity) {
		return problem.At("quantity", "a correction needs a quantity")
	}
	if e.Quantity.IsZero() && e.Unrounded == "" {
		return problem.At("quantity", "a correction of zero changes nothing")
	}
	if e.Meter != "" && e.Type != "" {
		return problem.At("type", "state either meter or type, not both")
	}
	if e.Has(GivenProperties) {
		return problem.At("properties", "a correction has no properties")
	}
	if len(e.Corrects) > MaxID+len(DerivedPrefix) || !cleanString(e.Corrects) {
		return problem.At("corrects", "must be the id of an event")
	}
	if p := e.checkStrings(); p != nil {
		return p
	}
	return checkMagnitude("quantity", e.Quantity)
}

func (e *Event) checkStrings() *problem.Error {
	if e.ID != "" {
		if len(e.ID) > MaxID {
			return problem.At("id", "at most %d bytes, this has %d", MaxID, len(e.ID))
		}
		if strings.HasPrefix(e.ID, DerivedPrefix) {
			return problem.At("id", "must not start with %q, which marks derived keys", DerivedPrefix)
		}
	}
	for _, f := range [...]struct {
		path, value string
		max         int
	}{
		{"id", e.ID, MaxID}, {"meter", e.Meter, MaxName}, {"type", e.Type, MaxName}, {"customer", e.Customer, MaxName},
		{"resource", e.Resource, MaxName}, {"reason", e.Reason, MaxReason},
	} {
		if len(f.value) > f.max {
			return problem.At(f.path, "at most %d bytes, this has %d", f.max, len(f.value))
		}
		if !cleanString(f.value) {
			return problem.At(f.path, "must be UTF-8 without NUL")
		}
	}
	if len(e.Properties) > MaxProperties {
		return problem.At("properties", "at most %d bytes, these have %d", MaxProperties, len(e.Properties))
	}
	if hasNUL(e.Properties) {
		return problem.At("properties", "must not contain NUL")
	}
	return nil
}

// hasNUL looks for the escape of NUL in canonical JSON: \u0000 behind an even number of backslashes.
func hasNUL(json string) bool {
	for i := 0; i+5 < len(json); i++ {
		if json[i] != '\\' {
			continue
		}
		if json[i+1:i+6] == "u0000" {
			return true
		}
		i++ // the escaped character
	}
	return false
}

// cleanString accepts UTF-8 without NUL, which SQL text cannot hold.
func cleanString(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == 0 || c >= utf8.RuneSelf {
			return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
		}
	}
	return true
}

func checkMagnitude(path string, q amount.Amount) *problem.Error {
	if q.Sign() < 0 {
		q = q.Neg()
	}
	if q.Cmp(maxQuantity) >= 0 {
		return problem.At(path, "must be smaller than 10^15")
	}
	return nil
}
