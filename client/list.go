package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Page is one page of a list. NextCursor is empty on the last one.
type Page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor"`
}

// Paging asks for a page: at most Limit items (0: the server's 100; at most
// 1000), from Cursor on (empty: from the start).
type Paging struct {
	Limit  int
	Cursor string
}

func (p Paging) query() url.Values {
	q := url.Values{}
	if p.Limit != 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}
	setNonEmpty(q, "cursor", p.Cursor)
	return q
}

func setNonEmpty(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func setTime(q url.Values, name string, t time.Time) {
	if !t.IsZero() {
		q.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
}

func getPage[T any](ctx context.Context, c *Client, path string, q url.Values) (*Page[T], error) {
	return fetch[Page[T]](ctx, c, http.MethodGet, path, q, nil)
}

// walk yields every item from the given cursor on. After an error it stops.
func walk[T any](ctx context.Context, c *Client, path string, q url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		// A copy, so that the sequence can be ranged over again.
		at := url.Values{}
		for name, values := range q {
			at[name] = values
		}
		for {
			page, err := getPage[T](ctx, c, path, at)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			// A cursor that leads to itself would list the same page for ever.
			if page.NextCursor == at.Get("cursor") {
				yield(none, fmt.Errorf("GET %s: %w: the cursor does not advance", path, ErrMalformed))
				return
			}
			at.Set("cursor", page.NextCursor)
		}
	}
}
