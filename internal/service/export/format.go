package export

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/tallystick/tallystick/internal/core/csvtext"
	"github.com/tallystick/tallystick/internal/core/ledger"
)

// encoder writes rows in one format. What it has written is whole after close.
type encoder interface {
	write(b *exported, r Row) error
	close() error
}

func newEncoder(w io.Writer, k Kind, f Format) (encoder, error) {
	switch k {
	case Changes:
		return encoderOf(w, f, recordOfChange)
	case Entries:
		return encoderOf(w, f, recordOfEntry)
	default:
		return encoderOf(w, f, recordOfEvent)
	}
}

func encoderOf[T any](w io.Writer, f Format, record func(*Ledger, *ledger.Row) (T, error)) (encoder, error) {
	rows, err := rowsOf[T](w, f)
	if err != nil {
		return nil, err
	}
	return &typed[T]{rows, record}, nil
}

// rows takes records of one type.
type rows[T any] interface {
	row(r *T) error
	close() error
}

func rowsOf[T any](w io.Writer, f Format) (rows[T], error) {
	switch f {
	case Parquet:
		return newParquetRows[T](w), nil
	case CSV:
		return newCSVRows[T](w)
	default:
		return newJSONRows[T](w), nil
	}
}

type typed[T any] struct {
	rows[T]
	record func(*Ledger, *ledger.Row) (T, error)
}

func (t *typed[T]) write(b *exported, r Row) error {
	if r.ledger == nil {
		var rec T
		if err := json.Unmarshal(r.record, &rec); err != nil {
			return fmt.Errorf("read a record of another process: %w", err)
		}
		return t.row(&rec)
	}
	rec, err := t.record(&b.Ledger, r.ledger)
	if err != nil {
		return fmt.Errorf("encode row %d: %w", r.ledger.Seq, err)
	}
	return t.row(&rec)
}

type jsonRows[T any] struct {
	buf *bufio.Writer
	enc *json.Encoder
}

func newJSONRows[T any](w io.Writer) *jsonRows[T] {
	buf := bufio.NewWriterSize(w, 1<<18)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return &jsonRows[T]{buf, enc}
}

func (j *jsonRows[T]) row(r *T) error { return j.enc.Encode(r) }
func (j *jsonRows[T]) close() error   { return j.buf.Flush() }

type csvRows[T any] struct {
	w     *csv.Writer
	cells []string
}

func newCSVRows[T any](w io.Writer) (*csvRows[T], error) {
	c := &csvRows[T]{w: csv.NewWriter(bufio.NewWriterSize(w, 1<<18))}
	kind := reflect.TypeFor[T]()
	for i := range kind.NumField() {
		name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		c.cells = append(c.cells, name)
	}
	return c, c.w.Write(c.cells)
}

func (c *csvRows[T]) row(r *T) error {
	v := reflect.ValueOf(r).Elem()
	for i := range c.cells {
		switch field := v.Field(i).Interface().(type) {
		case interface{ text() string }:
			c.cells[i] = field.text()
		case document:
			c.cells[i] = string(field)
		case string:
			c.cells[i] = csvtext.Text(field)
		default:
			c.cells[i] = fmt.Sprint(field)
		}
	}
	return c.w.Write(c.cells)
}

func (c *csvRows[T]) close() error {
	c.w.Flush()
	return c.w.Error()
}

// parquetRows gathers records, because the library takes them by the slice, and ends a row group before it grows large.
type parquetRows[T any] struct {
	w    *parquet.GenericWriter[T]
	some []T
	held int // rows of the group
}

const (
	parquetAtOnce = 1024
	groupRows     = 128 << 10
)

func newParquetRows[T any](w io.Writer) *parquetRows[T] {
	return &parquetRows[T]{w: parquet.NewGenericWriter[T](w, parquet.Compression(&parquet.Zstd),
		parquet.CreatedBy("tallystick", "1", ""))}
}

func (p *parquetRows[T]) row(r *T) error {
	p.some = append(p.some, *r)
	if len(p.some) < parquetAtOnce {
		return nil
	}
	return p.flush()
}

func (p *parquetRows[T]) flush() error {
	_, err := p.w.Write(p.some)
	p.held += len(p.some)
	p.some = p.some[:0]
	if err != nil || p.held < groupRows {
		return err
	}
	p.held = 0
	return p.w.Flush()
}

func (p *parquetRows[T]) close() error {
	if err := p.flush(); err != nil {
		return err
	}
	return p.w.Close()
}
