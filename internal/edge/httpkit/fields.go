package httpkit

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// Text reads a string. given is false when the field is absent, and into is then left as it is.
func (f *Form) Text(name string, into *string) (given bool) {
	v, given := f.take(name)
	if !given {
		return false
	}
	switch v := v.(type) {
	case string:
		*into = v
	case nil:
		*into = ""
	default:
		f.Fault(name, "must be a string")
		return false
	}
	return true
}

// Required notes an absent or empty string.
func (f *Form) Required(name string) string {
	var s string
	_, there := f.fields[name]
	if given := f.Text(name, &s); s == "" && (given || !there) {
		f.Fault(name, "required")
	}
	return s
}

// Texts reads an array of strings. given is false when the field is absent, and into is then left as it is.
func (f *Form) Texts(name string, into *[]string) (given bool) {
	v, given := f.take(name)
	if !given {
		return false
	}
	if v == nil {
		*into = nil
		return true
	}
	items, ok := v.([]any)
	if !ok {
		f.Fault(name, "must be an array of strings")
		return false
	}
	out := make([]string, 0, len(items))
	for i, item := range items {
		s, ok := item.(string)
		if !ok {
			f.Fault(name+"["+strconv.Itoa(i)+"]", "must be a string")
			return false
		}
		out = append(out, s)
	}
	*into = out
	return true
}

// Duration reads "48h"; a null is what the field is when nobody names it.
func (f *Form) Duration(name string, into *time.Duration, otherwise time.Duration) {
	v, given := f.take(name)
	if !given {
		return
	}
	if v == nil {
		*into = otherwise
		return
	}
	s, ok := v.(string)
	if !ok {
		f.Fault(name, errDuration.Error())
		return
	}
	d, err := ParseDuration(s)
	if err != nil {
		f.Fault(name, err.Error())
		return
	}
	*into = d
}

// Moment reads a time as events have it.
func (f *Form) Moment(name string, into *calendar.Micros) {
	v, given := f.take(name)
	var text string
	switch v := v.(type) {
	case nil:
		if given {
			*into = 0
		}
		return
	case string:
		text = v
		if _, err := strconv.ParseInt(v, 10, 64); err == nil {
			text = "" // milliseconds are a number, not a string
		}
	case json.Number:
		text = v.String()
	}
	m, wrong := parseMoment(text)
	if wrong != "" {
		f.Fault(name, wrong)
		return
	}
	*into = m
}

// Decimal reads a string or a number, digit by digit.
func (f *Form) Decimal(name string) string {
	v, given := f.take(name)
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case nil:
		f.Fault(name, "required")
	default:
		if given {
			f.Fault(name, "must be a decimal number, as a string or a number")
		}
	}
	return ""
}

// Count reads a whole number that is not negative.
func (f *Form) Count(name string, into *int64) {
	v, given := f.take(name)
	if !given || v == nil {
		return
	}
	number, ok := v.(json.Number)
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if !ok || err != nil || n < 0 {
		f.Fault(name, "must be a whole number, 0 or more")
		return
	}
	*into = n
}

// Given reads a string that may be absent.
func (f *Form) Given(name string) *string {
	var s string
	if !f.Text(name, &s) {
		return nil
	}
	return &s
}

// GivenDuration reads a duration that may be absent; a null is otherwise.
func (f *Form) GivenDuration(name string, otherwise time.Duration) *time.Duration {
	if _, there := f.fields[name]; !there {
		return nil
	}
	var d time.Duration
	f.Duration(name, &d, otherwise)
	return &d
}

// Named reads one of a few names.
func Named[T any](f *Form, name string, parse func(string) (T, *problem.Error)) *T {
	s := f.Given(name)
	if s == nil {
		return nil
	}
	v, p := parse(*s)
	f.Check(p)
	return &v
}

// Bool reads true or false; into is left as it is when the field is absent or null.
func (f *Form) Bool(name string, into *bool) {
	v, given := f.take(name)
	if !given || v == nil {
		return
	}
	b, ok := v.(bool)
	if !ok {
		f.Fault(name, "must be true or false")
		return
	}
	*into = b
}

// Amount reads a decimal that must be there; ok says that it is one.
func (f *Form) Amount(name string) (a amount.Amount, ok bool) {
	noted := len(f.wrong)
	text := f.Decimal(name)
	if len(f.wrong) > noted {
		return amount.Zero, false
	}
	a, err := amount.Parse(text)
	if err != nil {
		f.Fault(name, err.Error())
	}
	return a, err == nil
}

// OptionalAmount reads a decimal that may be absent or null; ok says that it is there and is one.
func (f *Form) OptionalAmount(name string) (a amount.Amount, ok bool) {
	if !f.Has(name) || f.IsNull(name) {
		f.take(name)
		return amount.Zero, false
	}
	return f.Amount(name)
}

// Numbers reads an array of small whole numbers; absent or null is otherwise. wrong says what each must be.
func (f *Form) Numbers(name string, otherwise []uint16, wrong string) []uint16 {
	v, given := f.take(name)
	if !given || v == nil {
		return otherwise
	}
	items, ok := v.([]any)
	if !ok {
		f.Fault(name, "must be an array of whole numbers")
		return nil
	}
	var out []uint16
	for i, item := range items {
		number, _ := item.(json.Number)
		n, err := strconv.ParseUint(number.String(), 10, 16)
		if err != nil {
			f.Fault(name+"["+strconv.Itoa(i)+"]", wrong)
			return nil
		}
		out = append(out, uint16(n))
	}
	return out
}
