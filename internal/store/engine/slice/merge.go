package slice

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
)

// ErrStopped is returned by work whose pace ended it.
var ErrStopped = errors.New("stopped")

// errChanged ends a merge whose files were lost under its hands.
var errChanged = errors.New("the files to be merged are gone")

// Merge makes one file of several of a month, if there are enough. It calls pace between pages and ends when that
// returns false. It reports whether it merged any.
func (s *Set) Merge(pace func() bool) (bool, error) {
	n := s.Acquire()
	defer n.Release()
	some := n.mergeable()
	if some == nil {
		return false, nil
	}
	meta := fileMeta{Number: s.number(), Month: some[0].Month, Span: Span{From: some[0].From, To: some[len(some)-1].To}}
	w, err := newWriter(s.fs, s.path(meta.Number), s.shape)
	if err != nil {
		return false, err
	}
	if err := s.mergeInto(w, some, pace); err != nil {
		w.abandon()
		return false, err
	}
	if err := w.finish(&meta); err != nil {
		return false, err
	}
	meta.Tier = tierOf(meta.Rows)
	var rows int64
	var sum uint64
	for _, f := range some {
		meta.Tier = max(meta.Tier, min(f.Tier+1, maxTier))
		rows += f.Rows
		sum += f.Digest
	}
	err = s.edit(func(m *manifest) error {
		if meta.Rows != rows || meta.Digest != sum {
			return fmt.Errorf("merging %d slices of %s gave other rows than they have", len(some), meta.Month)
		}
		before := len(m.Files)
		m.Files = slices.DeleteFunc(m.Files, func(x fileMeta) bool {
			return slices.ContainsFunc(some, func(f *file) bool { return f.Number == x.Number })
		})
		if before-len(m.Files) != len(some) {
			return errChanged
		}
		m.Files = append(m.Files, meta)
		return nil
	})
	if err != nil {
		s.remove([]fileMeta{meta})
		if errors.Is(err, errChanged) {
			err = nil
		}
		return false, err
	}
	s.mu.Lock()
	s.merges++
	s.mu.Unlock()
	return true, nil
}

// mergeable finds the neighbors to be merged next: as many as the fanout says of one month, of the lowest tier that has
// them.
func (n *Snapshot) mergeable() []*file {
	months := map[calendar.Month][]*file{}
	for _, f := range n.files {
		months[f.Month] = append(months[f.Month], f)
	}
	var best []*file
	lowest := uint32(maxTier + 1)
	for _, files := range months {
		slices.SortFunc(files, func(a, b *file) int { return comparePositions(a.From, b.From) })
		for i := range files {
			if some, tier := n.neighbors(files[i:]); some != nil && tier < lowest {
				best, lowest = some, tier
			}
		}
	}
	return best
}

// neighbors returns the first files if they can become one, and the highest tier among them. No hole may lie between
// them: the file would claim to hold what is missing.
func (n *Snapshot) neighbors(files []*file) ([]*file, uint32) {
	if len(files) < fanout {
		return nil, 0
	}
	rows, tier := int64(0), uint32(0)
	for _, f := range files[:fanout] {
		rows += f.Rows
		tier = max(tier, f.Tier)
	}
	span := Span{From: files[0].From, To: files[fanout-1].To}
	if rows > maxMergeRows || slices.ContainsFunc(n.Holes, func(h Hole) bool {
		return h.Month == files[0].Month && span.Holds(h.From)
	}) {
		return nil, 0
	}
	return files[:fanout], tier
}

func (s *Set) mergeInto(w *Writer, files []*file, pace func() bool) (err error) {
	inputs := make([]*input, 0, len(files))
	defer func() {
		for _, in := range inputs {
			err = errors.Join(err, in.close())
		}
	}()
	for _, f := range files {
		h, err := openHandle(f)
		if err != nil {
			return err
		}
		in := &input{handle: h}
		inputs = append(inputs, in)
		if err := in.nextPage(); err != nil {
			return err
		}
	}
	out := stretches{to: w}
	for {
		lowest, bound := pick(inputs)
		if lowest == nil {
			return out.write()
		}
		n := min(lowest.before(bound), w.room()-out.rows)
		if err := out.take(lowest, n); err != nil {
			return err
		}
		if lowest.at < lowest.rows {
			continue
		}
		if err := out.write(); err != nil { // before the page goes
			return err
		}
		if !pace() {
			return ErrStopped
		}
		if err := lowest.nextPage(); err != nil {
			return err
		}
	}
}

// stretches gathers rows of several inputs, at most to the end of a page: columns take many rows at once much faster.
type stretches struct {
	to     *Writer
	list   []stretch
	rows   int
	values [columnCount][]parquet.Value
}

type stretch struct {
	in       *input
	from, to int
}

func (s *stretches) take(in *input, n int) error {
	s.to.digest += in.digest(n)
	s.list = append(s.list, stretch{in, in.at, in.at + n})
	in.at += n
	if s.rows += n; s.rows < s.to.room() {
		return nil
	}
	return s.write()
}

func (s *stretches) write() error {
	if s.rows == 0 {
		return nil
	}
	for c := range s.values {
		s.values[c] = s.values[c][:0]
		for _, x := range s.list {
			s.values[c] = append(s.values[c], x.in.values[c][x.from:x.to]...)
		}
	}
	rows := s.rows
	s.list, s.rows = s.list[:0], 0
	return s.to.append(&s.values, 0, rows)
}

// pick returns the input whose row is the lowest, and the lowest of the others, nil if there is none.
func pick(inputs []*input) (lowest, next *input) {
	for _, in := range inputs {
		switch {
		case in.rows == 0:
		case lowest == nil:
			lowest = in
		case compareRows(in, in.at, lowest, lowest.at) < 0:
			lowest, next = in, lowest
		case next == nil || compareRows(in, in.at, next, next.at) < 0:
			next = in
		}
	}
	return lowest, next
}

// input is a file being merged: a page of it at a time, all columns.
type input struct {
	handle *handle
	group  int
	row    int // in the row group, of the next page
	pages  [columnCount]*cursor
	values [columnCount][]parquet.Value
	rows   int // of the page; zero at the end
	at     int
}

// inputRows bounds the rows of an input in memory, whatever its pages are.
const inputRows = 8192

// nextPage reads the next rows of all columns, as many as the current page of each has.
func (in *input) nextPage() error {
	in.at, in.rows = 0, 0
	if in.group < len(in.handle.groups) && in.row == in.handle.groups[in.group].rows {
		if err := in.closePages(); err != nil {
			return err
		}
		in.group, in.row = in.group+1, 0
	}
	if in.group == len(in.handle.groups) {
		return nil
	}
	g := &in.handle.groups[in.group]
	end := min(g.rows, in.row+inputRows)
	for i := range in.pages {
		if in.pages[i] == nil {
			c, err := newCursor(in.handle.file.path, g.chunks[i], g.rows)
			if err != nil {
				return err
			}
			in.pages[i] = c
		}
		if err := in.pages[i].load(in.row); err != nil {
			return err
		}
		end = min(end, in.pages[i].next)
	}
	for i, c := range in.pages {
		if err := c.values(&in.values[i], in.row, end); err != nil {
			return err
		}
	}
	in.rows = end - in.row
	in.row = end
	return nil
}

// values reads rows of the current page.
func (c *cursor) values(into *[]parquet.Value, from, to int) error {
	page := c.page.Slice(int64(from-c.first), int64(to-c.first))
	defer parquet.Release(page)
	*into = slices.Grow((*into)[:0], to-from)[:to-from]
	r := page.Values()
	for n := 0; n < to-from; {
		read, err := r.ReadValues((*into)[n:])
		n += read
		if err != nil && !errors.Is(err, io.EOF) || read == 0 && n < to-from {
			return fmt.Errorf("read slice %s: a page ends early: %w", c.path, err)
		}
	}
	return nil
}

func (in *input) closePages() error {
	var errs []error
	for i, c := range in.pages {
		if c != nil {
			errs = append(errs, c.close())
		}
		in.pages[i] = nil
	}
	return errors.Join(errs...)
}

func (in *input) close() error {
	return errors.Join(in.closePages(), in.handle.checked.Close())
}

// before is how many rows from the current one on come before that of another input.
func (in *input) before(other *input) int {
	if other == nil {
		return in.rows - in.at
	}
	// Stretches are long as a rule, so the step doubles.
	lo, hi := in.at, in.at+1
	for step := 1; hi < in.rows && compareRows(in, hi, other, other.at) < 0; step *= 2 {
		lo, hi = hi, hi+step
	}
	hi = min(hi, in.rows)
	for lo+1 < hi {
		if middle := (lo + hi) / 2; compareRows(in, middle, other, other.at) < 0 {
			lo = middle
		} else {
			hi = middle
		}
	}
	return lo + 1 - in.at
}

// digest is that of the next n rows.
func (in *input) digest(n int) (sum uint64) {
	series := uint64(0)
	for i := in.at; i < in.at+n; i++ {
		if i == in.at || !in.sameSeries(i, i-1) {
			series = hashSeries(shared(in.values[colTenant][i].ByteArray()), shared(in.values[colMeter][i].ByteArray()),
				shared(in.values[colCustomer][i].ByteArray()))
		}
		d := (*amount.Decimal)(in.values[colValue][i].ByteArray())
		sum += digest(series, uint64(in.values[colSeq][i].Int64()), calendar.Micros(in.values[colTime][i].Int64()), d)
	}
	return sum
}

func (in *input) sameSeries(i, j int) bool {
	for _, c := range [...]int{colCustomer, colMeter, colTenant} {
		if !bytes.Equal(in.values[c][i].ByteArray(), in.values[c][j].ByteArray()) {
			return false
		}
	}
	return true
}

// compareRows compares in the order of the files. Inputs are of one month, so that is left out.
func compareRows(a *input, i int, b *input, j int) int {
	for _, c := range [...]int{colTenant, colMeter, colCustomer} {
		if n := bytes.Compare(a.values[c][i].ByteArray(), b.values[c][j].ByteArray()); n != 0 {
			return n
		}
	}
	for _, c := range [...]int{colTime, colSeq} {
		x, y := a.values[c][i].Int64(), b.values[c][j].Int64()
		if x != y {
			if x < y {
				return -1
			}
			return 1
		}
	}
	return 0
}
