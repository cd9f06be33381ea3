package slice

import (
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/parquet-go/parquet-go"

	"github.com/tallystick/tallystick/internal/core/amount"
)

// cursor reads one column of a row group, page by page, forwards as a rule.
type cursor struct {
	path  string
	chunk *parquet.FileColumnChunk
	pages *parquet.FilePages
	rows  int // of the row group

	page  parquet.Page
	first int // row of the page
	next  int // row after it

	// Of pages with a dictionary, else nil.
	indexes []int32
	texts   []string        // of the dictionary, as far as it was made
	amounts []amount.Amount // likewise
	// Of pages without.
	data    []byte
	offsets []uint32
}

func newCursor(path string, chunk parquet.ColumnChunk, rows int) (*cursor, error) {
	fc, ok := chunk.(*parquet.FileColumnChunk)
	if !ok {
		return nil, fmt.Errorf("slice %s: a column is not of a file", path)
	}
	if _, err := fc.OffsetIndex(); err != nil { // without it a cursor cannot jump
		return nil, fmt.Errorf("read slice %s: %w", path, err)
	}
	return &cursor{path: path, chunk: fc, pages: fc.PagesFrom(fc.File()), rows: rows}, nil
}

func (c *cursor) close() error {
	parquet.Release(c.page)
	return c.pages.Close()
}

// load makes the page with a row the current one.
func (c *cursor) load(row int) error {
	if c.page != nil && row >= c.first && row < c.next {
		return nil
	}
	if row != c.next || c.page == nil && row != 0 {
		if err := c.pages.SeekToRow(int64(row)); err != nil {
			return fmt.Errorf("read slice %s: %w", c.path, err)
		}
	}
	page, err := c.pages.ReadPage()
	if errors.Is(err, io.EOF) {
		err = &Damage{File: c.path, Reason: fmt.Sprintf("a column ends before row %d of %d", row, c.rows)}
	}
	if err != nil {
		return fmt.Errorf("read slice %s: %w", c.path, err)
	}
	if c.page != nil {
		parquet.Release(c.page)
	}
	c.page, c.first, c.next = page, row, row+int(page.NumRows())
	c.indexes, c.data, c.offsets = nil, nil, nil
	values := page.Data()
	if page.Dictionary() != nil {
		c.indexes = values.Int32()
		return nil
	}
	c.data, c.offsets = values.Data()
	return nil
}

// ints appends rows from to to.
func (c *cursor) ints(into []int64, from, to int) ([]int64, error) {
	for from < to {
		if err := c.load(from); err != nil {
			return into, err
		}
		end := min(to, c.next)
		values := c.page.Data()
		into = append(into, values.Int64()[from-c.first:end-c.first]...)
		from = end
	}
	return into, nil
}

// decimals appends rows from to to.
func (c *cursor) decimals(into []amount.Amount, from, to int) ([]amount.Amount, error) {
	for from < to {
		if err := c.load(from); err != nil {
			return into, err
		}
		end := min(to, c.next)
		var err error
		if c.indexes == nil {
			into, err = c.appendAmounts(into, c.data[16*(from-c.first):16*(end-c.first)])
		} else if err = c.knowAmounts(); err == nil {
			for _, i := range c.indexes[from-c.first : end-c.first] {
				into = append(into, c.amounts[i])
			}
		}
		if err != nil {
			return into, err
		}
		from = end
	}
	return into, nil
}

func (c *cursor) knowAmounts() (err error) {
	if c.amounts == nil {
		values := c.page.Dictionary().Page().Data()
		data, _ := values.Data()
		c.amounts, err = c.appendAmounts(make([]amount.Amount, 0, len(data)/16), data)
	}
	return err
}

func (c *cursor) appendAmounts(into []amount.Amount, data []byte) ([]amount.Amount, error) {
	for ; len(data) >= 16; data = data[16:] {
		a, ok := amount.FromDecimal((*amount.Decimal)(data[:16]))
		if !ok {
			return into, &Damage{File: c.path, Reason: "holds a number of more than 38 digits"}
		}
		into = append(into, a)
	}
	return into, nil
}

// text is the string of a row, which shares the page's memory.
func (c *cursor) text(row int) (string, error) {
	if err := c.load(row); err != nil {
		return "", err
	}
	return c.at(row - c.first), nil
}

// at is the string of a row of the current page.
func (c *cursor) at(i int) string {
	if c.indexes != nil {
		return c.word(c.indexes[i])
	}
	return shared(c.data[c.offsets[i]:c.offsets[i+1]])
}

// word is an entry of the dictionary. It has memory of its own: a row group's dictionary is small, and outlives its
// pages.
func (c *cursor) word(i int32) string {
	if c.texts == nil {
		c.texts = make([]string, c.page.Dictionary().Len())
	}
	if c.texts[i] == "" {
		c.texts[i] = string(c.page.Dictionary().Index(i).ByteArray())
	}
	return c.texts[i]
}

func shared(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// strings appends rows from to to. They are copies where pages share no dictionary.
func (c *cursor) strings(into []string, from, to int) ([]string, error) {
	for from < to {
		if err := c.load(from); err != nil {
			return into, err
		}
		end := min(to, c.next)
		if c.indexes != nil {
			for _, i := range c.indexes[from-c.first : end-c.first] {
				into = append(into, c.word(i))
			}
		} else {
			a, b := c.offsets[from-c.first], c.offsets[end-c.first]
			block := string(c.data[a:b])
			for i := from - c.first; i < end-c.first; i++ {
				into = append(into, block[c.offsets[i]-a:c.offsets[i+1]-a])
			}
		}
		from = end
	}
	return into, nil
}

// run is a stretch of equal strings.
type run struct {
	text string
	end  int // row after it
}

// runs appends the stretches of rows from to to.
func (c *cursor) runs(into []run, from, to int) ([]run, error) {
	for from < to {
		if err := c.load(from); err != nil {
			return into, err
		}
		end := min(to, c.next)
		for from < end {
			i := from - c.first
			j := i + 1
			if c.indexes != nil {
				for n := end - c.first; j < n && c.indexes[j] == c.indexes[i]; j++ {
				}
			} else {
				for n := end - c.first; j < n && c.at(j) == c.at(i); j++ {
				}
			}
			text := c.at(i)
			if last := len(into) - 1; last >= 0 && into[last].text == text {
				into[last].end = c.first + j
			} else {
				if c.indexes == nil {
					text = string([]byte(text)) // the page may go before the run does
				}
				into = append(into, run{text, c.first + j})
			}
			from = c.first + j
		}
	}
	return into, nil
}

// equal narrows rows lo to hi, in which the column is sorted, to those with a value.
func (c *cursor) equal(want string, lo, hi int) (int, int, error) {
	lo, err := c.search(lo, hi, func(s string) bool { return s >= want })
	if err != nil {
		return lo, hi, err
	}
	hi, err = c.search(lo, hi, func(s string) bool { return s > want })
	return lo, hi, err
}

// search finds the first of the rows lo to hi for which fn is true; from there on it is. Pages are distinguished by
// their bounds, and only the one that it lies in is read.
func (c *cursor) search(lo, hi int, fn func(string) bool) (int, error) {
	index, err := c.chunk.ColumnIndex()
	if err != nil {
		return lo, fmt.Errorf("read slice %s: %w", c.path, err)
	}
	offsets, err := c.chunk.OffsetIndex()
	if err != nil {
		return lo, fmt.Errorf("read slice %s: %w", c.path, err)
	}
	for p := range offsets.NumPages() {
		first, end := int(offsets.FirstRowIndex(p)), c.rows
		if p+1 < offsets.NumPages() {
			end = int(offsets.FirstRowIndex(p + 1))
		}
		if first >= hi {
			break
		}
		if end <= lo || !fn(shared(index.MaxValue(p).ByteArray())) {
			continue
		}
		// The bounds also count rows before lo, so that the row may lie in a page further on.
		a, b := max(first, lo), min(end, hi)
		for a < b {
			middle := (a + b) / 2
			s, err := c.text(middle)
			if err != nil {
				return lo, err
			}
			if fn(s) {
				b = middle
			} else {
				a = middle + 1
			}
		}
		if a < min(end, hi) || end >= hi {
			return a, nil
		}
	}
	return hi, nil
}
