package httpapi

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// plainAnswer is the http.ResponseWriter of a lane: it gathers an answer whole. Its memory serves the next answer too.
type plainAnswer struct {
	header http.Header
	status int
	body   []byte
	out    bytes.Buffer

	date   []byte
	second int64 // of the date
}

func (a *plainAnswer) Header() http.Header { return a.header }

func (a *plainAnswer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *plainAnswer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, b...)
	return len(b), nil
}

func (a *plainAnswer) begin() {
	if a.header == nil {
		a.header = http.Header{}
	}
	clear(a.header)
	a.status, a.body = 0, a.body[:0]
}

// closes reports whether the handler wants the connection to end.
func (a *plainAnswer) closes() bool { return len(a.header["Connection"]) > 0 }

// bytes is the answer as it is sent, until the next begins. Headers stand in net/http's order: a lane is not to be
// known from it.
func (a *plainAnswer) bytes(now time.Time, last bool) []byte {
	a.WriteHeader(http.StatusOK)
	if second := now.Unix(); second != a.second {
		a.second, a.date = second, now.UTC().AppendFormat(a.date[:0], http.TimeFormat)
	}
	a.out.Reset()
	b := append(a.out.AvailableBuffer(), "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(a.status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(a.status)...)
	b = append(b, "\r\n"...)
	a.out.Write(b)
	_ = a.header.Write(&a.out) // a buffer takes everything
	b = append(a.out.AvailableBuffer(), "Date: "...)
	b = append(b, a.date...)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(a.body)), 10)
	if last && !a.closes() {
		b = append(b, "\r\nConnection: close"...)
	}
	b = append(b, "\r\n\r\n"...)
	a.out.Write(append(b, a.body...))
	return a.out.Bytes()
}
