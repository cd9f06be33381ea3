package httpkit

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	// MaxFilter bounds a query parameter: no name that could match is longer.
	MaxFilter = 1024
	// maxNameShown bounds how much of a parameter's name a refusal repeats.
	maxNameShown = 64
	// minMillis is where a number begins to be believed to be milliseconds, as in events.
	minMillis = 100_000_000_000
)

// Query is what a request asks for beside its path, checked: no parameter that the route does not know, none twice,
// none empty. A typo must not silently widen a query.
type Query struct {
	values     url.Values
	properties []string // the names of the parameters that filter by a property, sorted
	hash       [cursorHash]byte
}

// AnyProperty, among the parameters that a route knows, stands for those that filter by a property.
const AnyProperty = "properties.<name>"

// Query reads the parameters; known names all that the route knows.
func (x *Exchange) Query(known ...string) (Query, error) {
	return ParseQuery(x.r.URL.RawQuery, x.Caller.Tenant, x.r.URL.Path, known...)
}

// ParseQuery reads parameters as they stand behind the question mark. A cursor in them belongs to the list of this
// tenant at this path.
func ParseQuery(raw, tenantID, path string, known ...string) (Query, error) {
	q := Query{values: url.Values{}}
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		if err := q.add(part, known); err != nil {
			return Query{}, err
		}
	}
	slices.Sort(q.properties)
	q.hash = filterHash(tenantID, path, slices.Concat(known, q.properties), q.values)
	return q, nil
}

// IsText reports whether s could be the name of anything.
func IsText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// add takes one parameter as it stands between two &.
func (q *Query) add(part string, known []string) error {
	rawName, rawValue, _ := strings.Cut(part, "=")
	name, err := url.QueryUnescape(rawName)
	if err != nil {
		return BadParameter(rawName, "the name cannot be read: check its percent-encoding")
	}
	value, err := url.QueryUnescape(rawValue)
	d, isDimension := usage.ParseDimension(name)
	property := isDimension && d.Of == usage.ByProperty && slices.Contains(known, AnyProperty)
	switch {
	case !property && !slices.Contains(known, name):
		return BadParameter(name, "unknown parameter")
	case q.values.Has(name):
		return BadParameter(name, "stands twice")
	case err != nil:
		return BadParameter(name, "cannot be read: check its percent-encoding, in which % is %25")
	case strings.Contains(part, ";"):
		return BadParameter(name,
			"has a semicolon: write %3B for one that belongs to the value, and & between parameters")
	case value == "":
		return BadParameter(name, "empty: leave it out to not filter by it")
	case len(value) > MaxFilter || !IsText(value):
		return BadParameter(name, "at most "+strconv.Itoa(MaxFilter)+" bytes of UTF-8 without NUL")
	}
	if property {
		q.properties = append(q.properties, name)
	}
	q.values[name] = []string{value}
	return nil
}

// NoQuery refuses any parameter.
func (x *Exchange) NoQuery() error {
	if x.r.URL.RawQuery == "" {
		return nil
	}
	_, err := x.Query()
	return err
}

// BadParameter refuses a value of the query, always with the same code. A name that the caller made up may be of any
// length.
func BadParameter(name, message string) error {
	if len(name) > maxNameShown {
		name = name[:maxNameShown] + "…"
	}
	return &problem.Error{Code: problem.Malformed, Detail: "query parameter " + name + ": " + message,
		Fields: []problem.Field{{Path: name, Message: message}}}
}

// ofQuery codes what a service found invalid: a read has nothing but its query that could be.
func (x *Exchange) ofQuery(err error) error {
	var p *problem.Error
	if x.route.Method != http.MethodGet || !errors.As(err, &p) || p.Code != problem.Invalid {
		return err
	}
	if len(p.Fields) == 0 {
		return problem.Wrap(problem.Malformed, err, "%s", p.Detail)
	}
	return BadParameter(p.Fields[0].Path, p.Fields[0].Message)
}

// Get returns a parameter; empty when it is absent.
func (q Query) Get(name string) string { return q.values.Get(name) }

// Limit is how many items a page has at most.
func (q Query) Limit() (int, error) {
	wrong := "must be a number between 1 and " + strconv.Itoa(maxLimit)
	n, err := q.Number("limit", defaultLimit, maxLimit, wrong)
	if err == nil && n == 0 {
		return 0, BadParameter("limit", wrong)
	}
	return n, err
}

// Number reads digits alone, up to a bound; absent is otherwise. wrong says what is wanted.
func (q Query) Number(name string, otherwise, most int, wrong string) (int, error) {
	text := q.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n > uint64(most) {
		return 0, BadParameter(name, wrong)
	}
	return int(n), nil
}

// Properties are the names of the parameters that filter by a property, sorted.
func (q Query) Properties() []string { return q.properties }

// Month reads a month; nil when it is absent.
func (q Query) Month(name string) (*calendar.Month, error) {
	text := q.Get(name)
	if text == "" {
		return nil, nil //nolint:nilnil // absent is neither a month nor wrong
	}
	m, err := calendar.ParseMonth(text)
	if err != nil {
		return nil, BadParameter(name, err.Error())
	}
	return &m, nil
}

// Seq reads the number of a row; absent is otherwise.
func (q Query) Seq(name string, otherwise uint64) (uint64, error) {
	text := q.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, BadParameter(name, "must be the number of a row")
	}
	return n, nil
}

// Moment reads a time; nil when it is absent.
func (q Query) Moment(name string) (*calendar.Micros, error) {
	text := q.Get(name)
	if text == "" {
		return nil, nil //nolint:nilnil // absent is neither a moment nor wrong
	}
	m, problem := parseMoment(text)
	if problem != "" {
		return nil, BadParameter(name, problem)
	}
	return &m, nil
}

// parseMoment reads RFC 3339, a date alone, which is midnight in UTC, or epoch milliseconds. The second result says
// what is wrong.
func parseMoment(text string) (calendar.Micros, string) {
	if millis, err := strconv.ParseInt(text, 10, 64); err == nil {
		switch {
		case millis < minMillis:
			return 0, "looks like seconds; a number must be milliseconds since 1970"
		case millis > int64(calendar.MaxMicros)/1000:
			return 0, "must lie between 1970 and 9999"
		}
		return calendar.Micros(millis * 1000), ""
	}
	m, ok := calendar.ParseMoment(text)
	if !ok {
		return 0, "must be RFC 3339 from 1970 to 9999, for example 2026-11-15T02:10:00Z (a + in a query is " +
			"written %2B), a date, which is midnight in UTC, or milliseconds since 1970"
	}
	return m, ""
}
