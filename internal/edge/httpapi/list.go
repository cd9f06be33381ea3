package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
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
	// maxFilter bounds a query parameter: no name that could match is longer.
	maxFilter = 1024
	// maxNameShown bounds how much of a parameter's name a refusal repeats.
	maxNameShown = 64
	// minMillis is where a number begins to be believed to be milliseconds, as in events.
	minMillis = 100_000_000_000
)

// query is what a request asks for beside its path, checked: no parameter that the route does not know, none twice,
// none empty. A typo must not silently widen a query.
type query struct {
	values     url.Values
	properties []string // the names of the parameters that filter by a property, sorted
	hash       [cursorHash]byte
}

// anyProperty, among the parameters that a route knows, stands for those that filter by a property.
const anyProperty = "properties.<name>"

// query reads the parameters; known names them all.
func (x *exchange) query(known ...string) (query, error) {
	q := query{values: url.Values{}}
	for part := range strings.SplitSeq(x.r.URL.RawQuery, "&") {
		if part == "" {
			continue
		}
		if err := q.add(part, known); err != nil {
			return query{}, err
		}
	}
	slices.Sort(q.properties)
	q.hash = filterHash(x.caller.Tenant, x.r.URL.Path, slices.Concat(known, q.properties), q.values)
	return q, nil
}

// isText reports whether s could be the name of anything.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// add takes one parameter as it stands between two &.
func (q *query) add(part string, known []string) error {
	rawName, rawValue, _ := strings.Cut(part, "=")
	name, err := url.QueryUnescape(rawName)
	if err != nil {
		return badParameter(rawName, "the name cannot be read: check its percent-encoding")
	}
	value, err := url.QueryUnescape(rawValue)
	d, isDimension := usage.ParseDimension(name)
	property := isDimension && d.Of == usage.ByProperty && slices.Contains(known, anyProperty)
	switch {
	case !property && !slices.Contains(known, name):
		return badParameter(name, "unknown parameter")
	case q.values.Has(name):
		return badParameter(name, "stands twice")
	case err != nil:
		return badParameter(name, "cannot be read: check its percent-encoding, in which % is %25")
	case strings.Contains(part, ";"):
		return badParameter(name, "has a semicolon: write %3B for one that belongs to the value, and & between parameters")
	case value == "":
		return badParameter(name, "empty: leave it out to not filter by it")
	case len(value) > maxFilter || !isText(value):
		return badParameter(name, "at most "+strconv.Itoa(maxFilter)+" bytes of UTF-8 without NUL")
	}
	if property {
		q.properties = append(q.properties, name)
	}
	q.values[name] = []string{value}
	return nil
}

// noQuery refuses any parameter.
func (x *exchange) noQuery() error {
	if x.r.URL.RawQuery == "" {
		return nil
	}
	_, err := x.query()
	return err
}

// badParameter refuses a value of the query, always with the same code. A name that the caller made up may be of any
// length.
func badParameter(name, message string) error {
	if len(name) > maxNameShown {
		name = name[:maxNameShown] + "…"
	}
	return &problem.Error{Code: problem.Malformed, Detail: "query parameter " + name + ": " + message,
		Fields: []problem.Field{{Path: name, Message: message}}}
}

// ofQuery codes what a service found invalid: a read has nothing but its query that could be.
func (x *exchange) ofQuery(err error) error {
	var p *problem.Error
	if x.route.method != http.MethodGet || !errors.As(err, &p) || p.Code != problem.Invalid {
		return err
	}
	if len(p.Fields) == 0 {
		return problem.Wrap(problem.Malformed, err, "%s", p.Detail)
	}
	return badParameter(p.Fields[0].Path, p.Fields[0].Message)
}

func (q query) get(name string) string { return q.values.Get(name) }

func (q query) limit() (int, error) {
	text := q.get("limit")
	if text == "" {
		return defaultLimit, nil
	}
	n, ok := wholeNumber(text, maxLimit)
	if !ok || n == 0 {
		return 0, badParameter("limit", "must be a number between 1 and "+strconv.Itoa(maxLimit))
	}
	return n, nil
}

// wholeNumber reads digits alone, up to a bound.
func wholeNumber(text string, most int) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err == nil && n <= uint64(most)
}

func (q query) month(name string) (*calendar.Month, error) {
	text := q.get(name)
	if text == "" {
		return nil, nil //nolint:nilnil // absent is neither a month nor wrong
	}
	m, err := calendar.ParseMonth(text)
	if err != nil {
		return nil, badParameter(name, err.Error())
	}
	return &m, nil
}

func (q query) moment(name string) (*calendar.Micros, error) {
	text := q.get(name)
	if text == "" {
		return nil, nil //nolint:nilnil // absent is neither a moment nor wrong
	}
	m, problem := parseMoment(text)
	if problem != "" {
		return nil, badParameter(name, problem)
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
		return 0, "must be RFC 3339 from 1970 to 9999, for example 2026-11-15T02:10:00Z (a + in a query is written %2B), a date, which is " +
			"midnight in UTC, or milliseconds since 1970"
	}
	return m, ""
}

// A cursor is base64url of a version, a hash of the list that it belongs to, and the place from which the list goes on.
// It is no secret and proves nothing: what it leads to is read with the caller's own rights.
const (
	cursorVersion = 1
	cursorHash    = 8
	maxCursor     = 1024
)

// filterHash is of everything that the list depends on except how far along it the page is.
func filterHash(tenantID, path string, known []string, values url.Values) (out [cursorHash]byte) {
	var b []byte
	add := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	add(tenantID)
	add(path)
	for _, name := range known {
		if name != "limit" && name != "cursor" && name != "offset" {
			add(name)
			add(values.Get(name))
		}
	}
	sum := sha256.Sum256(b)
	copy(out[:], sum[:])
	return out
}

// cursor writes the place.
func (q query) cursor(place []byte) string {
	b := append([]byte{cursorVersion}, q.hash[:]...)
	return base64.RawURLEncoding.EncodeToString(append(b, place...))
}

// place reads what cursor wrote; it is nil when there is no cursor.
func (q query) place() ([]byte, error) {
	text := q.get("cursor")
	if text == "" {
		return nil, nil
	}
	if len(text) > maxCursor {
		return nil, errCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 1+cursorHash || b[0] != cursorVersion {
		return nil, errCursor
	}
	if [cursorHash]byte(b[1:]) != q.hash {
		return nil, badParameter("cursor", "belongs to a list with other filters: keep them, or start without a cursor")
	}
	return b[1+cursorHash:], nil
}

var errCursor = badParameter("cursor", "not a cursor of this list: use next_cursor as it was answered")

// seqPlace and afterSeq are the place in a list that is ordered by seq.
func seqPlace(seq uint64) []byte { return binary.AppendUvarint(nil, seq) }

func (q query) afterSeq() (uint64, error) {
	place, err := q.place()
	if err != nil || place == nil {
		return 0, err
	}
	seq, n := binary.Uvarint(place)
	if n <= 0 || n != len(place) || seq > math.MaxInt64 {
		return 0, errCursor
	}
	return seq, nil
}

// afterName is the place in a list that is ordered by name.
func (q query) afterName() (string, error) {
	place, err := q.place()
	if err != nil {
		return "", err
	}
	if !isText(string(place)) {
		return "", errCursor
	}
	return string(place), nil
}

// page reads the parameters of a list that has no filters.
func (x *exchange) page() (q query, limit int, after string, err error) {
	if q, err = x.query("limit", "cursor"); err != nil {
		return q, 0, "", err
	}
	if limit, err = q.limit(); err != nil {
		return q, 0, "", err
	}
	after, err = q.afterName()
	return q, limit, after, err
}

// list writes {"items":[…],"next_cursor":…}; next is nil on the last page.
func list[T any](x *exchange, q query, items []T, next []byte, render func([]byte, *T) []byte) error {
	b := make([]byte, 0, 64+256*len(items))
	b = append(b, `{"items":[`...)
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = render(b, &items[i])
	}
	return x.answer(http.StatusOK, endList(b, q, next))
}

func endList(b []byte, q query, next []byte) []byte {
	b = append(b, `],"next_cursor":`...)
	if next == nil {
		return append(b, "null}\n"...)
	}
	b = append(b, '"')
	b = append(b, q.cursor(next)...)
	return append(b, "\"}\n"...)
}

// listByName writes a page out of one item more than fits it, which tells whether there is a next one.
func listByName[T any](x *exchange, q query, limit int, items []T, name func(*T) string, render func([]byte, *T) []byte) error {
	if len(items) <= limit {
		return list(x, q, items, nil, render)
	}
	items = items[:limit]
	return list(x, q, items, []byte(name(&items[limit-1])), render)
}
