package client

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// streamEvent is one block of a stream of Server-Sent Events. One without data is
// no event, but its id is a place to resume from.
type streamEvent struct {
	id    string // of this block alone
	name  string
	data  string
	retry time.Duration // zero: it says nothing
}

// eventReader reads blocks as the HTML standard has them: lines end with LF, CR
// or both, a line without a colon is a name alone, unknown names and comments
// are passed over, and a block that the end of the stream cuts off is none.
type eventReader struct {
	in    *bufio.Reader
	limit int64 // bytes of one block
	begun bool
	cr    bool // the last line ended with CR: an LF that follows belongs to it
}

func newEventReader(r io.Reader, limit int64) *eventReader {
	return &eventReader{in: bufio.NewReader(r), limit: limit}
}

// next returns the next block that says anything. Errors: io.EOF,
// ErrAnswerTooLarge, those of the reader.
func (r *eventReader) next() (e streamEvent, err error) {
	left, said, data := r.limit, false, []string(nil)
	for {
		line, err := r.line(&left)
		if err != nil {
			return streamEvent{}, err
		}
		if line == "" {
			if said {
				e.data = strings.Join(data, "\n")
				return e, nil
			}
			continue
		}
		said = true // a comment says that the server is there
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			if strings.IndexByte(value, 0) < 0 {
				e.id = value
			}
		case "event":
			e.name = value
		case "data":
			data = append(data, value)
		case "retry":
			if ms, err := strconv.ParseUint(value, 10, 31); err == nil {
				e.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// line reads one line, without its end.
func (r *eventReader) line(left *int64) (string, error) {
	var line []byte
	for {
		b, err := r.in.ReadByte()
		if err != nil {
			return "", err
		}
		if r.cr && b == '\n' {
			r.cr = false
			continue
		}
		if r.cr = b == '\r'; r.cr || b == '\n' {
			if !r.begun {
				r.begun = true
				line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
			}
			return string(line), nil
		}
		if *left--; *left < 0 {
			return "", fmt.Errorf("%w: an event of more than %d bytes", ErrAnswerTooLarge, r.limit)
		}
		line = append(line, b)
	}
}
