package slice

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/parquet-go/parquet-go"
)

// Writer writes one file: rows in their order, pages of as many rows as its shape says.
type Writer struct {
	name    string
	fs      vfs.FS
	shape   shape
	file    vfs.File
	sums    *summer
	parquet *parquet.GenericWriter[record]
	columns []*parquet.ColumnWriter
	rows    int64
	inGroup int
	digest  uint64
}

func newWriter(fs vfs.FS, name string, s shape) (*Writer, error) {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("create slice: %w", err)
	}
	w := &Writer{name: name, fs: fs, shape: s, file: f, sums: &summer{to: f, size: s.blockBytes}}
	w.parquet = parquet.NewGenericWriter[record](w.sums, s.options()...)
	w.columns = w.parquet.ColumnWriters()
	return w, nil
}

// room is how many rows the current page takes.
func (w *Writer) room() int { return w.shape.pageRows - w.inGroup%w.shape.pageRows }

// append adds rows i to j of the columns, at most as many as there is room for.
func (w *Writer) append(columns *[columnCount][]parquet.Value, i, j int) error {
	for c, cw := range w.columns {
		if _, err := cw.WriteRowValues(columns[c][i:j]); err != nil {
			return fmt.Errorf("write slice %s: %w", w.name, err)
		}
	}
	w.rows += int64(j - i)
	if w.inGroup += j - i; w.inGroup%w.shape.pageRows != 0 {
		return nil
	}
	return w.endPage()
}

func (w *Writer) endPage() error {
	for _, cw := range w.columns {
		if err := cw.Flush(); err != nil {
			return fmt.Errorf("write slice %s: %w", w.name, err)
		}
	}
	if w.inGroup < w.shape.groupRows {
		return nil
	}
	w.inGroup = 0
	if err := w.parquet.Flush(); err != nil {
		return fmt.Errorf("write slice %s: %w", w.name, err)
	}
	return nil
}

// finish makes the file and its sums durable, all but their names, and says what it is. One that cannot be finished is
// removed.
func (w *Writer) finish(meta *fileMeta) (err error) {
	defer func() {
		if err != nil {
			w.abandon()
		}
	}()
	err = w.parquet.Close()
	if err == nil {
		err = w.sums.flush()
	}
	if err == nil {
		err = w.file.Sync()
	}
	err = errors.Join(err, w.file.Close())
	w.file = nil
	if err != nil {
		return fmt.Errorf("write slice %s: %w", w.name, err)
	}
	sums := w.sums.encode()
	meta.Rows, meta.Bytes, meta.Sums, meta.Digest = w.rows, w.sums.total, hashSums(sums), w.digest
	return writeSynced(w.fs, sumsName(w.name), sums)
}

// abandon removes what was written.
func (w *Writer) abandon() {
	if w.file != nil {
		_ = w.file.Close()
	}
	_ = w.fs.Remove(w.name)
	_ = w.fs.Remove(sumsName(w.name))
}

func writeSynced(fs vfs.FS, name string, b []byte) error {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
