package eventjson

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// decoder reads one body in one pass. Its methods return false once fault is set, and nothing is read after that.
type decoder struct {
	body      []byte // up to the end of the document, which may be one line
	pos       int
	depth     int
	line      int  // counted from 1 when the body has lines
	index     int  // of the event being read, or -1
	outermost bool // the event being read is the whole body
	fault     *problem.Error
	events    []usage.Event
	cloud     bool // the events are CloudEvents

	names   []name              // of the objects being read, innermost last; only where a duplicate is possible
	members []properties.Member // of the properties being read
	scratch []byte              // decoded text of members
}

// maxNames bounds the names that are compared with one another, and with them the memory and time that a hostile body
// takes. A valid event has at most properties.MaxMembers of them.
const maxNames = 10_000

// name is a member's name and where it stands.
type name struct {
	text string
	at   int
}

// fail refuses the body.
func (d *decoder) fail(at int, format string, args ...any) bool {
	var where strings.Builder
	if d.line > 0 {
		fmt.Fprintf(&where, "line %d, ", d.line)
	}
	if d.index >= 0 {
		fmt.Fprintf(&where, "event %d, ", d.index)
	}
	d.fault = problem.New(problem.Malformed, "%sbyte %d: %s", where.String(), at, fmt.Sprintf(format, args...))
	return false
}

// unexpected refuses the byte at pos.
func (d *decoder) unexpected(wanted string) bool {
	switch {
	case d.pos < len(d.body):
		return d.fail(d.pos, "expected %s, found %q", wanted, d.body[d.pos])
	case d.line > 0:
		return d.fail(d.pos, "the line ends where %s was expected", wanted)
	default:
		return d.fail(d.pos, "the body ends where %s was expected", wanted)
	}
}

// invalid refuses one event. The first problem stays.
func invalid(ev *usage.Event, path, format string, args ...any) {
	if ev.Invalid == nil {
		ev.Invalid = problem.At(path, format, args...)
	}
}

// wrongType refuses one event for the type of the value at pos, and passes over that value.
func (d *decoder) wrongType(ev *usage.Event, path, wanted string) bool {
	switch d.peek() {
	case 'n':
		invalid(ev, path, "must be %s, not null; leave out what is not known", wanted)
	case '"':
		invalid(ev, path, "must be %s, not a string", wanted)
	case '{':
		invalid(ev, path, "must be %s, not an object", wanted)
	case '[':
		invalid(ev, path, "must be %s, not an array", wanted)
	case 't', 'f':
		invalid(ev, path, "must be %s, not a boolean", wanted)
	default:
		invalid(ev, path, "must be %s, not a number", wanted)
	}
	return d.skip()
}

// remember keeps a member's name for distinct.
func (d *decoder) remember(text string, at int) bool {
	if len(d.names) == maxNames {
		return d.fail(at, "more than %d members in an object", maxNames)
	}
	d.names = append(d.names, name{text, at})
	return true
}

// distinct refuses the body if two of the names since base are the same, and forgets them.
func (d *decoder) distinct(base int) bool {
	const few = 16 // comparing all pairs of these is cheaper than sorting
	names := d.names[base:]
	d.names = d.names[:base]
	if len(names) > few {
		slices.SortFunc(names, func(a, b name) int {
			return cmp.Or(strings.Compare(a.text, b.text), cmp.Compare(a.at, b.at))
		})
	}
	for i, n := range names {
		against := names[:i]
		if len(names) > few {
			against = names[max(i-1, 0):i]
		}
		for _, earlier := range against {
			if earlier.text == n.text {
				return d.duplicate(n.text, n.at)
			}
		}
	}
	return true
}

func (d *decoder) duplicate(name string, at int) bool {
	return d.fail(at, "duplicate name %q in an object", brief(name))
}

// brief cuts a name from a request to what fits a message.
func brief(name string) string {
	const limit = 64
	if len(name) <= limit {
		return name
	}
	end := limit
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end] + "…"
}
