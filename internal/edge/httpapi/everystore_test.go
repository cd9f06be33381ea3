package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tallystick/tallystick/internal/service/gate"
)

// everyStore is the same world on every store. Clock and chance are the same in all, so that nothing of an answer may
// differ but the id of its request.
type everyStore struct {
	t      *testing.T
	names  []string
	worlds []*world
	asked  int
	full   map[string]bool // routes that answered 200 with more than an empty list
	made   map[string]bool // paths that were written to
}

func newEveryStore(t *testing.T) *everyStore {
	t.Helper()
	all := &everyStore{t: t, full: map[string]bool{}, made: map[string]bool{}}
	for _, name := range []string{"naive", "engine", "postgres"} {
		all.names = append(all.names, name)
		all.worlds = append(all.worlds, newWorldOn(t, openers[name], gate.Options{}))
	}
	return all
}

// do sends a call to every store and wants one answer. It returns the first store's.
func (all *everyStore) do(c call) answer {
	all.t.Helper()
	all.made[c.path] = all.made[c.path] || c.method == http.MethodPost
	answers := make([]answer, len(all.worlds))
	var wg sync.WaitGroup
	for i, w := range all.worlds {
		wg.Go(func() { answers[i] = w.do(c) })
	}
	wg.Wait()
	all.asked++
	want := shown(answers[0])
	for i, a := range answers[1:] {
		if got := shown(a); got != want {
			all.t.Errorf("%s %.300s (%s %v)\non %s: %s\non %s: %s", c.method, c.path, c.key, c.header, all.names[0],
				want, all.names[i+1], got)
		}
	}
	if answers[0].code >= http.StatusInternalServerError {
		all.t.Errorf("%s %s (%s): %s", c.method, c.path, c.key, want)
	}
	return answers[0]
}

// shown is all of an answer that must be the same everywhere.
func shown(a answer) string {
	id := a.header.Get("Tally-Request-Id")
	names := make([]string, 0, len(a.header))
	for name := range a.header {
		if name != "Date" && name != "Tally-Request-Id" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var b strings.Builder
	fmt.Fprintln(&b, a.code)
	for _, name := range names {
		value := strings.Join(a.header[name], ", ")
		if name == "Content-Length" { // the ids of two servers may differ in length
			value = fmt.Sprint(len(a.body) - len(id)*bytes.Count(a.body, []byte(id)))
		}
		fmt.Fprintf(&b, "%s: %s\n", name, value)
	}
	for line := range bytes.Lines(bytes.ReplaceAll(a.body, []byte(id), []byte("<id>"))) {
		if !bytes.HasPrefix(line, []byte(`{"progress":`)) { // how often it is sent is a matter of time
			b.Write(line)
		}
	}
	return b.String()
}

// ask sends a question and follows its cursors to the end of the list.
func (all *everyStore) ask(route string, q question) {
	all.t.Helper()
	c := q.call
	a := all.do(c)
	if q.good && a.code == http.StatusBadRequest {
		all.t.Errorf("GET %.300s: %s, and nothing is wrong with the question", c.path, a.body)
	}
	if a.code == http.StatusOK && (a.doc["items"] == nil || len(a.items(all.t)) > 0) {
		all.full[route] = true
	}
	for pages := 0; a.code == http.StatusOK && a.text("next_cursor") != ""; pages++ {
		if pages == maxPages {
			all.t.Errorf("%s: a list without end", c.path)
			return
		}
		next := c
		next.path = at(c.path, "cursor", a.text("next_cursor"))
		a = all.do(next)
	}
}

// cursorHead is how many bytes of a cursor say what list it belongs to.
const cursorHead = 9

// maxPages is more than any list of the ledger has, one item a page.
const maxPages = 400

// at adds a parameter to a path.
func at(path, name, value string) string {
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return path + separator + name + "=" + url.QueryEscape(value)
}

// forge asks for a list from places that no answer has named: the head of a cursor is real, what follows is not.
func (all *everyStore) forge(path string) {
	all.t.Helper()
	key := "admin"
	if path == "/v1/tenants" {
		key = "operator"
	}
	a := all.do(call{method: "GET", path: at(path, "limit", "1"), key: key})
	cursor, err := base64.RawURLEncoding.DecodeString(a.text("next_cursor"))
	if a.code != http.StatusOK || err != nil || len(cursor) < cursorHead {
		return // a list of one page has no cursor to begin with
	}
	for _, place := range forgedPlaces() {
		forged := base64.RawURLEncoding.EncodeToString(append(slices.Clone(cursor[:cursorHead]), place...))
		all.do(call{method: "GET", path: at(path, "cursor", forged), key: key})
	}
}

// forgedPlaces are numbers at their edges, and names that cannot be or are nobody's, alone and in the shapes that lists
// use.
func forgedPlaces() (out [][]byte) {
	for _, n := range []uint64{0, 1, math.MaxInt32, math.MaxInt32 + 1, math.MaxInt64, math.MaxInt64 + 1,
		math.MaxUint64} {
		out = append(out, binary.AppendUvarint(nil, n), binary.AppendVarint(nil, int64(n)))
	}
	for _, month := range []int64{-1, 24322, 119988, 5874898 * 12, math.MaxInt32} {
		for _, name := range []string{"", "calls", "calls\x00", "\xff", "\U0010ffff"} {
			place := binary.AppendVarint(nil, month)
			out = append(out, append(slices.Clone(place), name...))
			place = append(binary.AppendUvarint(place, uint64(len(name))), name...)
			out = append(out, place, append(slices.Clone(place), name...))
		}
	}
	for _, name := range []string{"", "a", "a\x01", "zzzz", "a\x00b", "\x00", "\xff", "\xed\xa0\x80", "é",
		"\U0010ffff", strings.Repeat("x", 600)} {
		out = append(out, []byte(name))
	}
	return out
}

// ids are some of those that a list shows, from its whole length.
func (all *everyStore) ids(list string) (out []string) {
	all.t.Helper()
	ids := all.worlds[0].pages("admin", list, "id")
	for i := 0; i < len(ids); i += max(1, len(ids)/10) {
		out = append(out, ids[i])
	}
	return out
}

// Given one ledger that was written in the same way to every store, when anything is asked that the published document
// knows of, with good, odd and bad parameters, then all stores give the same answer, byte by byte.
func TestStoresAnswerAlike(t *testing.T) {
	t.Parallel()
	all := newEveryStore(t)
	all.play()
	doc := newContract(t).doc
	questions := newQuestions(t, all.ids)
	for _, route := range questions.routes(doc) {
		for _, q := range questions.of(route) {
			all.ask(route.path, q)
		}
		if route.takes("cursor") {
			for _, path := range questions.lists(route) {
				all.forge(path)
			}
		}
		if !all.full[route.path] {
			t.Errorf("no answer of GET %s had anything in it: the comparison proves nothing", route.path)
		}
	}
	t.Logf("%d exchanges", all.asked)
	if all.asked < 1500 {
		t.Errorf("only %d exchanges were compared", all.asked)
	}
}
