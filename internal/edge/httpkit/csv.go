package httpkit

import "net/http"

var csvType = []string{"text/csv; charset=utf-8; header=present"}

// BeginTable says that CSV follows, and where the next page begins: a header has room for what a table has none for.
func (x *Exchange) BeginTable(q Query, next []byte) {
	h := x.w.Header()
	h["Content-Type"] = csvType
	if next != nil {
		h["Tally-Next-Cursor"] = []string{q.Cursor(next)}
	}
}

// AnswerTable sends a page of CSV.
func (x *Exchange) AnswerTable(q Query, body, next []byte) error {
	x.BeginTable(q, next)
	x.Write(http.StatusOK, body)
	return nil
}
