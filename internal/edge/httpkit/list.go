package httpkit

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"net/url"
)

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

// Cursor writes the place.
func (q Query) Cursor(place []byte) string {
	b := append([]byte{cursorVersion}, q.hash[:]...)
	return base64.RawURLEncoding.EncodeToString(append(b, place...))
}

// Place reads what Cursor wrote; it is nil when there is no cursor. Errors: ErrCursor, or that it is of another list.
func (q Query) Place() ([]byte, error) {
	text := q.Get("cursor")
	if text == "" {
		return nil, nil
	}
	if len(text) > maxCursor {
		return nil, ErrCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 1+cursorHash || b[0] != cursorVersion {
		return nil, ErrCursor
	}
	if [cursorHash]byte(b[1:]) != q.hash {
		return nil, BadParameter("cursor",
			"belongs to a list with other filters: keep them, or start without a cursor")
	}
	return b[1+cursorHash:], nil
}

// ErrCursor refuses a cursor that the list did not make.
var ErrCursor = BadParameter("cursor", "not a cursor of this list: use next_cursor as it was answered")

// SeqPlace is the place after a row in a list that is ordered by seq.
func SeqPlace(seq uint64) []byte { return binary.AppendUvarint(nil, seq) }

// AfterSeq reads what SeqPlace wrote; zero is the beginning.
func (q Query) AfterSeq() (uint64, error) {
	place, err := q.Place()
	if err != nil || place == nil {
		return 0, err
	}
	seq, n := binary.Uvarint(place)
	if n <= 0 || n != len(place) || seq > math.MaxInt64 {
		return 0, ErrCursor
	}
	return seq, nil
}

// AfterName reads the place in a list that is ordered by name; empty is the beginning.
func (q Query) AfterName() (string, error) {
	place, err := q.Place()
	if err != nil {
		return "", err
	}
	if !IsText(string(place)) {
		return "", ErrCursor
	}
	return string(place), nil
}

// Page reads the parameters of a list that has no filters.
func (x *Exchange) Page() (q Query, limit int, after string, err error) {
	if q, err = x.Query("limit", "cursor"); err != nil {
		return q, 0, "", err
	}
	if limit, err = q.Limit(); err != nil {
		return q, 0, "", err
	}
	after, err = q.AfterName()
	return q, limit, after, err
}

// List writes {"items":[…],"next_cursor":…}; next is nil on the last page.
func List[T any](x *Exchange, q Query, items []T, next []byte, render func([]byte, *T) []byte) error {
	b := make([]byte, 0, 64+256*len(items))
	b = append(b, `{"items":[`...)
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = render(b, &items[i])
	}
	return x.Answer(http.StatusOK, EndList(b, q, next))
}

// EndList ends what List writes, for items that were written one by one.
func EndList(b []byte, q Query, next []byte) []byte {
	b = append(b, `],"next_cursor":`...)
	if next == nil {
		return append(b, "null}\n"...)
	}
	b = append(b, '"')
	b = append(b, q.Cursor(next)...)
	return append(b, "\"}\n"...)
}

// ListByName writes a page out of one item more than fits it, which shows whether there is a next one.
func ListByName[T any](
	x *Exchange, q Query, limit int, items []T, name func(*T) string, render func([]byte, *T) []byte,
) error {
	if len(items) <= limit {
		return List(x, q, items, nil, render)
	}
	items = items[:limit]
	return List(x, q, items, []byte(name(&items[limit-1])), render)
}
