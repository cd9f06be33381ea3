// Package eventjson decodes usage events from JSON: one event, an array, {"events":[…]}, lines, and CloudEvents 1.0,
// with their attributes in the JSON or beside it.
//
// It is strict where leniency would bill something else than was meant: duplicate names, bad UTF-8, lone surrogates,
// trailing bytes and too deep nesting refuse the whole body; a wrong or unknown field refuses that event alone. It is
// pure: bytes in, events out. It knows no meter and judges no event beyond its JSON; usage.Event.Check does the rest.
//
// It is written by hand because a prototype of the whole server took 0.9 M events/s over HTTP with such a decoder and
// 0.35 M with encoding/json, which also lets duplicate names and bad UTF-8 pass. A plain event costs no allocation: its
// strings share memory with the body. So whoever keeps anything of the events must never write to the body again.
package eventjson

import (
	"bytes"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
)

const (
	// MaxEvents bounds one request, so that its facts fit one commit.
	MaxEvents = 10_000

	// MaxDepth bounds the nesting of objects and arrays, and with it the stack. No valid body needs more than 4.
	MaxDepth = 32
)

// Batch is a decoded request body.
type Batch struct {
	Events []usage.Event
	Single bool // the body was one object that is an event
}

// Decode reads one event object, an array of them, or {"events":[…]}. The events are appended to into[:0].
//
// Like all decoders here it returns a *problem.Error: Malformed for a body that is not what it should be, with the byte
// at which that was seen, or TooLarge for more than MaxEvents. An event with a wrong field is no error: it has Invalid
// set.
func Decode(body []byte, into []usage.Event) (Batch, error) {
	d := decoder{body: body, events: into[:0], index: -1}
	single, ok := d.document()
	return d.result(single, ok)
}

// DecodeLines reads one event object on each line. Blank lines are skipped.
func DecodeLines(body []byte, into []usage.Event) (Batch, error) {
	d := decoder{events: into[:0], index: -1}
	return d.result(false, d.lines(body))
}

// DecodeCloudEvent reads one CloudEvent in the JSON event format.
func DecodeCloudEvent(body []byte, into []usage.Event) (Batch, error) {
	d := decoder{body: body, events: into[:0], index: -1, cloud: true}
	ok := d.start() && d.expect('{', "a CloudEvent object") && d.element() && d.end()
	return d.result(true, ok)
}

// DecodeCloudEvents reads an array of CloudEvents in the JSON batch format.
func DecodeCloudEvents(body []byte, into []usage.Event) (Batch, error) {
	d := decoder{body: body, events: into[:0], index: -1, cloud: true}
	ok := d.start() && d.expect('[', "an array of CloudEvents") && d.elements() && d.end()
	return d.result(false, ok)
}

func (d *decoder) result(single, ok bool) (Batch, error) {
	if !ok {
		return Batch{}, d.fault
	}
	if len(d.events) == 0 {
		return Batch{}, problem.New(problem.Malformed, "the body holds no events")
	}
	return Batch{Events: d.events, Single: single}, nil
}

// start refuses what cannot begin a body.
func (d *decoder) start() bool {
	if bytes.HasPrefix(d.body, []byte("\xef\xbb\xbf")) {
		return d.fail(0, "the body starts with a byte order mark, which JSON does not allow")
	}
	if d.peek() == 0 && d.pos == len(d.body) {
		return d.fail(d.pos, "the body is empty")
	}
	return true
}

// end refuses bytes after the document.
func (d *decoder) end() bool {
	if d.peek(); d.pos < len(d.body) {
		return d.fail(d.pos, "there are bytes after the end of the JSON value")
	}
	return true
}

func (d *decoder) expect(first byte, what string) bool {
	if d.peek() != first {
		return d.fail(d.pos, "the body must be %s", what)
	}
	return true
}

// document reads the body of Decode. An object with the member events is a batch, any other is an event.
func (d *decoder) document() (single, ok bool) {
	if !d.start() {
		return false, false
	}
	switch d.peek() {
	case '[':
		return false, d.elements() && d.end()
	case '{':
		batch, ok := d.isBatch()
		if !ok {
			return false, false
		}
		if batch {
			return false, d.wrapper() && d.end()
		}
		d.outermost = true
		return true, d.element() && d.end()
	}
	return false, d.fail(d.pos, `the body must be an event, an array of events, or {"events":[…]}`)
}

// isBatch looks at the first member of the object at pos.
func (d *decoder) isBatch() (batch, ok bool) {
	start := d.pos
	if d.pos++; d.peek() == '"' {
		name, _, ok := d.name()
		if !ok {
			return false, false
		}
		batch = name == batchMember
	}
	d.pos = start
	return batch, true
}

// batchMember names the array of a batch object.
const batchMember = "events"

// wrapper reads {"events":[…]}.
func (d *decoder) wrapper() bool {
	if !d.open() {
		return false
	}
	if _, _, ok := d.name(); !ok {
		return false
	}
	if d.peek() != '[' {
		return d.fail(d.pos, "events must be an array")
	}
	if !d.elements() {
		return false
	}
	if d.peek() == ',' {
		return d.fail(d.pos, "an object with the member events must have no other member")
	}
	_, ok := d.more('}')
	return ok
}

// elements reads an array of events.
func (d *decoder) elements() bool {
	if !d.open() {
		return false
	}
	for again := !d.closes(']'); again; {
		if !d.element() {
			return false
		}
		var ok bool
		if again, ok = d.more(']'); !ok {
			return false
		}
	}
	d.index = -1
	return true
}

// lines reads a body of lines. Each is a document of its own, so a value that spans lines is refused.
func (d *decoder) lines(body []byte) bool {
	d.body = body
	if !d.start() {
		return false
	}
	for d.pos = 0; d.pos < len(body); d.pos = len(d.body) + 1 {
		d.line++
		d.body = body
		if n := bytes.IndexByte(body[d.pos:], '\n'); n >= 0 {
			d.body = body[:d.pos+n]
		}
		if d.peek(); d.pos == len(d.body) {
			continue
		}
		if !d.element() || !d.end() {
			return false
		}
	}
	return true
}

// element reads one value of the batch into a fresh event.
func (d *decoder) element() bool {
	n := len(d.events)
	if n == MaxEvents {
		d.fault = problem.New(problem.TooLarge, "at most %d events fit one request", MaxEvents)
		return false
	}
	d.index = n
	ev := d.next()
	if d.peek() != '{' {
		return d.wrongType(ev, "event", "an object")
	}
	if d.cloud {
		return d.cloudEvent(ev)
	}
	return d.event(ev)
}

// next is a new event.
func (d *decoder) next() *usage.Event {
	n := len(d.events)
	if n < cap(d.events) {
		d.events = d.events[:n+1]
		d.events[n] = usage.Event{}
	} else {
		d.events = append(d.events, usage.Event{})
	}
	d.events[n].Quantity = amount.One
	return &d.events[n]
}
