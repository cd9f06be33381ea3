package postgres

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
)

// Parameters and results travel in PostgreSQL's binary formats, written and read here by hand: a batch is a handful of
// arrays of thousands of elements, and a general encoder would box every one of them.

// The types of array elements, by PostgreSQL's numbers.
const (
	oidBool        = 16
	oidBytea       = 17
	oidInt8        = 20
	oidInt2        = 21
	oidInt4        = 23
	oidText        = 25
	oidDate        = 1082
	oidTimestamptz = 1184
	oidNumeric     = 1700
)

// PostgreSQL counts time from the year 2000.
const (
	epochMicros  = 946_684_800_000_000
	epochDays    = 10_957
	microsPerDay = 86_400_000_000
)

// array is an array parameter under construction. Its memory is used again after reset.
type array struct {
	buf []byte
	n   uint32
}

// arrayHeader is the number of dimensions, whether there are nulls, the element type, and length and lower bound.
const arrayHeader = 20

func (a *array) reset(oid uint32) {
	var header [arrayHeader]byte
	binary.BigEndian.PutUint32(header[0:], 1)
	binary.BigEndian.PutUint32(header[8:], oid)
	binary.BigEndian.PutUint32(header[16:], 1)
	a.buf, a.n = append(a.buf[:0], header[:]...), 0
}

// param is the array as a parameter. It is valid until the next change.
func (a *array) param() []byte {
	binary.BigEndian.PutUint32(a.buf[12:], a.n)
	return a.buf
}

func (a *array) null() {
	binary.BigEndian.PutUint32(a.buf[4:], 1)
	a.buf = append(a.buf, 0xff, 0xff, 0xff, 0xff)
	a.n++
}

func (a *array) length(n int) {
	a.buf = binary.BigEndian.AppendUint32(a.buf, uint32(n))
	a.n++
}

func (a *array) text(s string) {
	a.length(len(s))
	a.buf = append(a.buf, s...)
}

// optional writes an empty text as null.
func (a *array) optional(s string) {
	if s == "" {
		a.null()
		return
	}
	a.text(s)
}

// link writes the number of a row, or null for none.
func (a *array) link(seq uint64) {
	if seq == 0 {
		a.null()
		return
	}
	a.int8(int64(seq))
}

func (a *array) bytes(b []byte) {
	a.length(len(b))
	a.buf = append(a.buf, b...)
}

func (a *array) int8(v int64) {
	a.length(8)
	a.buf = binary.BigEndian.AppendUint64(a.buf, uint64(v))
}

func (a *array) int4(v int32) {
	a.length(4)
	a.buf = binary.BigEndian.AppendUint32(a.buf, uint32(v))
}

func (a *array) int2(v int16) {
	a.length(2)
	a.buf = binary.BigEndian.AppendUint16(a.buf, uint16(v))
}

func (a *array) bool(v bool) {
	a.length(1)
	a.buf = append(a.buf, boolByte(v))
}

func (a *array) time(m calendar.Micros) { a.int8(int64(m) - epochMicros) }
func (a *array) month(m calendar.Month) { a.int4(days(m)) }
func (a *array) day(d calendar.Day)     { a.int4(int32(d) - epochDays) }

func (a *array) amount(v amount.Amount) {
	at := len(a.buf)
	a.length(0)
	a.buf = appendNumeric(a.buf, v)
	binary.BigEndian.PutUint32(a.buf[at:], uint32(len(a.buf)-at-4))
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func days(m calendar.Month) int32 { return int32(int64(m.Start())/microsPerDay - epochDays) }

// Scalar parameters.

func int8Param(v int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }
func int2Param(v int16) []byte { return binary.BigEndian.AppendUint16(nil, uint16(v)) }
func int4Param(v int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }

func timeParam(m calendar.Micros) []byte { return int8Param(int64(m) - epochMicros) }
func monthParam(m calendar.Month) []byte { return int4Param(days(m)) }
func textsParam(texts []string) []byte {
	var a array
	a.reset(oidText)
	for _, s := range texts {
		a.text(s)
	}
	return a.param()
}

// reader takes the columns of one result row, in order. The first failure is kept; what is read after it means nothing.
type reader struct {
	values [][]byte
	at     int
	err    error
}

func (r *reader) next(size int) []byte {
	if r.err != nil {
		return nil
	}
	if r.at == len(r.values) {
		r.err = fmt.Errorf("a result has %d columns, more were expected", len(r.values))
		return nil
	}
	v := r.values[r.at]
	r.at++
	if size >= 0 && len(v) != size {
		r.err = fmt.Errorf("column %d of a result has %d bytes instead of %d", r.at, len(v), size)
		return nil
	}
	return v
}

// isNull looks at the next column without taking it.
func (r *reader) isNull() bool { return r.at < len(r.values) && r.values[r.at] == nil }

func (r *reader) skip(n int) { r.at += n }

func (r *reader) text() string  { return string(r.next(-1)) }
func (r *reader) bytes() []byte { return append([]byte(nil), r.next(-1)...) }

func (r *reader) int8() int64 {
	if v := r.next(8); v != nil {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

// link reads the number of a row; zero: none.
func (r *reader) link() uint64 {
	if r.isNull() {
		r.skip(1)
		return 0
	}
	return uint64(r.int8())
}

func (r *reader) int4() int32 {
	if v := r.next(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

func (r *reader) int2() int16 {
	if v := r.next(2); v != nil {
		return int16(binary.BigEndian.Uint16(v))
	}
	return 0
}

func (r *reader) bool() bool {
	v := r.next(1)
	return v != nil && v[0] != 0
}

func (r *reader) time() calendar.Micros { return calendar.Micros(r.int8() + epochMicros) }

func (r *reader) month() calendar.Month {
	return calendar.MonthOf(calendar.Micros((int64(r.int4()) + epochDays) * microsPerDay))
}

func (r *reader) day() calendar.Day { return calendar.Day(r.int4() + epochDays) }

func (r *reader) amount() amount.Amount {
	v := r.next(-1)
	if r.err != nil {
		return amount.Zero
	}
	a, err := readNumeric(v)
	if err != nil {
		r.err = fmt.Errorf("column %d of a result: %w", r.at, err)
	}
	return a
}

// clean reports whether SQL text can hold s. What it cannot hold is in no table, so that a look for it finds nothing.
func clean(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
