package slice

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/parquet-go/parquet-go"
)

// file is one that a manifest names, or named when a reader began.
type file struct {
	fileMeta
	set  *Set
	path string
	refs atomic.Int64 // snapshots that have it
}

// glance looks whether a file is there and its end, which leads to everything else, is whole.
func (f *file) glance() error {
	c, err := openChecked(f.set.fs, f.path, &f.fileMeta, f.set.shape.blockBytes)
	if err != nil {
		return err
	}
	_, err = c.ReadAt(make([]byte, 1), f.Bytes-1)
	return errors.Join(err, c.Close())
}

// handle is an open file with its footer.
type handle struct {
	file    *file
	checked *checkedFile
	parquet *parquet.File
	groups  []group
	users   int // guarded by handles.mu
}

// group is a row group and what its statistics say.
type group struct {
	rows                    int
	chunks                  []parquet.ColumnChunk
	tenant, meter, customer bounds[string]
	time, seq               bounds[int64]
	why, corrects           bounds[string]
}

type bounds[T string | int64] struct{ min, max T }

func (b bounds[T]) holds(v T) bool { return b.min <= v && v <= b.max }
func (b bounds[T]) all(v T) bool   { return b.min == v && v == b.max }

func openHandle(f *file) (*handle, error) {
	c, err := openChecked(f.set.fs, f.path, &f.fileMeta, f.set.shape.blockBytes)
	if err != nil {
		return nil, err
	}
	h := &handle{file: f, checked: c}
	if err := h.readFooter(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return h, nil
}

func (h *handle) readFooter() (err error) {
	f := h.file
	h.parquet, err = parquet.OpenFile(h.checked, f.Bytes, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true),
		parquet.ReadBufferSize(f.set.shape.readBuffer))
	if err != nil {
		return fmt.Errorf("open slice %s: %w", f.path, err)
	}
	rows := int64(0)
	for _, rg := range h.parquet.RowGroups() {
		g := group{rows: int(rg.NumRows()), chunks: rg.ColumnChunks()}
		if len(g.chunks) != columnCount {
			return &Damage{File: f.path, Reason: "has other columns"}
		}
		for column, b := range map[int]*bounds[string]{colTenant: &g.tenant, colMeter: &g.meter,
			colCustomer: &g.customer, colWhy: &g.why, colCorrects: &g.corrects} {
			lo, hi, ok := chunkBounds(g.chunks[column])
			if !ok {
				return &Damage{File: f.path, Reason: "has no statistics"}
			}
			b.min, b.max = string(lo.ByteArray()), string(hi.ByteArray())
		}
		for column, b := range map[int]*bounds[int64]{colTime: &g.time, colSeq: &g.seq} {
			lo, hi, ok := chunkBounds(g.chunks[column])
			if !ok {
				return &Damage{File: f.path, Reason: "has no statistics"}
			}
			b.min, b.max = lo.Int64(), hi.Int64()
		}
		rows += rg.NumRows()
		h.groups = append(h.groups, g)
	}
	if rows != f.Rows {
		return &Damage{File: f.path, Reason: fmt.Sprintf("has %d rows, %d were written", rows, f.Rows)}
	}
	return nil
}

func chunkBounds(c parquet.ColumnChunk) (lo, hi parquet.Value, ok bool) {
	fc, ok := c.(*parquet.FileColumnChunk)
	if !ok {
		return lo, hi, false
	}
	return fc.Bounds()
}

// handles keeps files open, not more than maxOpen that nobody uses.
type handles struct {
	mu     sync.Mutex // guards what follows and the handles' users
	open   []*handle  // the one used last at the end
	closed bool
}

// maxOpen bounds descriptors and footers in memory.
const maxOpen = 128

// use opens the file if it is not, and calls fn with it.
func (c *handles) use(f *file, fn func(*handle) error) (err error) {
	h, err := c.borrow(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.giveBack(h)) }()
	return fn(h)
}

func (c *handles) borrow(f *file) (*handle, error) {
	if h, err := c.find(f); h != nil || err != nil {
		return h, err
	}
	h, err := openHandle(f)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h.users = 1
	c.open = append(c.open, h) // another reader may have opened it meanwhile: then it is open twice for a while
	return h, nil
}

func (c *handles) find(f *file) (*handle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	i := slices.IndexFunc(c.open, func(h *handle) bool { return h.file == f })
	if i < 0 {
		return nil, nil //nolint:nilnil // not open yet
	}
	h := c.open[i]
	c.open = append(slices.Delete(c.open, i, i+1), h)
	h.users++
	return h, nil
}

func (c *handles) giveBack(h *handle) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.users--
	if c.closed {
		return c.shrink(0)
	}
	return c.shrink(maxOpen)
}

// shrink closes what nobody uses, the longest unused first, until few enough are open. mu is held.
func (c *handles) shrink(to int) error {
	var errs []error
	for i := 0; i < len(c.open) && len(c.open) > to; {
		if c.open[i].users > 0 {
			i++
			continue
		}
		errs = append(errs, c.open[i].checked.Close())
		c.open = slices.Delete(c.open, i, i+1)
	}
	return errors.Join(errs...)
}

// drop closes a file that nobody uses any more.
func (c *handles) drop(f *file) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = slices.DeleteFunc(c.open, func(h *handle) bool {
		if h.file == f {
			_ = h.checked.Close() // was only read
		}
		return h.file == f
	})
}

// close closes all. What readers still use is closed by the last of them.
func (c *handles) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.shrink(0)
}
