package retention

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sort"

	"github.com/parquet-go/parquet-go"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/store"
)

// maxManifest bounds what is read of a file that should be a manifest.
const maxManifest = 64 << 20

// openManifest reads a manifest and makes sure that it is the one that was meant.
func openManifest(ctx context.Context, storage Storage, name string, sum [sha256.Size]byte) (manifest, error) {
	blob, err := storage.Open(ctx, name)
	if err != nil {
		return manifest{}, fmt.Errorf("open %s: %w", name, err)
	}
	defer func() { _ = blob.Close() }() // was only read
	if blob.Size() > maxManifest {
		return manifest{}, fmt.Errorf("%s: %w", name, errManifest)
	}
	b := make([]byte, blob.Size())
	if n, err := blob.ReadAt(b, 0); n < len(b) {
		return manifest{}, fmt.Errorf("read %s: %w", name, err)
	}
	return decodeManifest(b, name, sum)
}

// rowsOf reads the rows of an archive in order, those above after. It checks every file's hash first when proving.
type rowsOf struct {
	ctx     context.Context
	storage Storage
	files   []fileJSON
	after   uint64
	proving bool

	blob   Blob
	reader *parquet.GenericReader[record]
	some   []record
	at, n  int
}

func openRows(ctx context.Context, storage Storage, m *manifest, after uint64, proving bool) *rowsOf {
	return &rowsOf{ctx: ctx, storage: storage, files: m.Files, after: after, proving: proving,
		some: make([]record, atOnce)}
}

// next returns the next record, valid until the next call; io.EOF at the end.
func (r *rowsOf) next() (*record, error) {
	for {
		if r.at < r.n {
			r.at++
			return &r.some[r.at-1], nil
		}
		if r.reader == nil {
			if len(r.files) == 0 {
				return nil, io.EOF
			}
			f := r.files[0]
			r.files = r.files[1:]
			if f.LastSeq <= r.after {
				continue
			}
			if err := r.open(&f); err != nil {
				return nil, fmt.Errorf("read %s: %w", f.Name, errors.Join(err, r.close()))
			}
		}
		n, err := r.reader.Read(r.some)
		r.at, r.n = 0, n
		if n == 0 {
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
			if err := r.close(); err != nil {
				return nil, err
			}
		}
	}
}

func (r *rowsOf) open(f *fileJSON) (err error) {
	if r.blob, err = r.storage.Open(r.ctx, f.Name); err != nil {
		return err
	}
	if r.blob.Size() != f.Bytes {
		return fmt.Errorf("it has %d bytes, the manifest says %d", r.blob.Size(), f.Bytes)
	}
	if r.proving {
		h := sha256.New()
		if _, err := io.Copy(h, io.NewSectionReader(r.blob, 0, f.Bytes)); err != nil {
			return err
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != f.SHA256 {
			return fmt.Errorf("its SHA-256 is %s, the manifest says %s", got, f.SHA256)
		}
	}
	file, err := parquet.OpenFile(r.blob, f.Bytes)
	if err != nil {
		return err
	}
	if rows := file.NumRows(); rows != int64(f.Rows) {
		return fmt.Errorf("it has %d rows, the manifest says %d", rows, f.Rows)
	}
	r.reader = parquet.NewGenericReader[record](file)
	return r.skip(f)
}

// skip goes to the first row above after; rows are in order of their numbers.
func (r *rowsOf) skip(f *fileJSON) error {
	if f.FirstSeq > r.after {
		return nil
	}
	var failed error
	one := make([]record, 1)
	i := sort.Search(int(f.Rows), func(i int) bool {
		if err := r.reader.SeekToRow(int64(i)); err != nil {
			failed = err
			return true
		}
		if n, err := r.reader.Read(one); n != 1 {
			failed = errors.Join(errors.New("a row cannot be read"), err)
			return true
		}
		return one[0].Seq > r.after
	})
	return errors.Join(failed, r.reader.SeekToRow(int64(i)))
}

func (r *rowsOf) close() (err error) {
	if r.reader != nil {
		err = r.reader.Close()
	}
	if r.blob != nil {
		err = errors.Join(err, r.blob.Close())
	}
	r.reader, r.blob, r.at, r.n = nil, nil, 0, 0
	return err
}

// readBack reads an archive whole, from the storage, and compares it with the ledger row by row and with its own
// manifest.
func (r *run) readBack(id string, want manifest) error {
	m, err := openManifest(r.ctx, r.storage, want.name, want.sum)
	if err != nil {
		return err
	}
	rows := openRows(r.ctx, r.storage, &m, 0, true)
	defer func() { _ = rows.close() }() // was only read
	p := proof{manifest: &m, leaves: sha256.New(), sums: map[uint32]*taken{}}
	err = r.store.View(r.ctx, id, func(v store.View) error {
		if p.slugs, err = store.Slugs(v); err != nil {
			return err
		}
		t, err := store.Tenant(v)
		if err != nil {
			return err
		}
		if p.keys, err = tree.NewKeys(t.TreeKeys); err != nil {
			return err
		}
		hint := store.RowHint{From: m.month.Start(), To: m.month.End(), Events: true}
		for after, end := uint64(0), false; !end; {
			var failed error
			after, end, err = v.Rows(after, hint, func(row *ledger.Row) bool {
				if row.Kind() != ledger.EventRow || row.Event.Month() != m.month {
					return true
				}
				failed = p.compare(row, rows)
				return failed == nil
			})
			if err = errors.Join(err, failed, r.ctx.Err()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if extra, err := rows.next(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the archive goes on after the ledger's last row of the month: %v, %w", extra != nil, err)
	}
	return p.end()
}

// proof gathers what the manifest states from what is read.
type proof struct {
	manifest   *manifest
	slugs      map[uint32]string
	rows       uint64
	sections   uint64
	section    uint64
	leaves     hash.Hash
	hasher     ledger.Hasher
	keys       *tree.Keys
	sums       map[uint32]*taken
	have, want []byte
}

// compare holds the next archived row against the ledger's.
func (p *proof) compare(row *ledger.Row, rows *rowsOf) error {
	rec, err := rows.next()
	if err != nil {
		return fmt.Errorf("row %d of the ledger is not in the archive: %w", row.Seq, err)
	}
	got, err := rec.row()
	if err != nil {
		return err
	}
	p.have, p.want = ledger.AppendCanonical(p.have[:0], &got, tree.Hash{}),
		ledger.AppendCanonical(p.want[:0], row, tree.Hash{})
	if !bytes.Equal(p.have, p.want) {
		return fmt.Errorf("row %d of the ledger is another one in the archive", row.Seq)
	}
	if p.section != rec.SectionFirst {
		p.section = rec.SectionFirst
		p.sections++
	}
	leaf := p.hasher.Leaf(p.keys, &got)
	p.leaves.Write(leaf[:])
	p.rows++
	for i := range row.Event.Outcomes {
		o := &row.Event.Outcomes[i]
		t := p.sums[o.Meter]
		if t == nil {
			t = &taken{slug: p.slugs[o.Meter]}
			p.sums[o.Meter] = t
		}
		t.rows++
		t.sum, _ = t.sum.Add(o.Value)
	}
	return nil
}

// end compares what was read with what the manifest says.
func (p *proof) end() error {
	m := p.manifest
	if p.rows != m.Rows || p.sections != m.Sections || hex.EncodeToString(p.leaves.Sum(nil)) != m.Leaves ||
		len(p.sums) != len(m.Meters) {
		return errors.New("the archive holds other rows or sections than its manifest says")
	}
	for _, t := range p.sums {
		found := false
		for _, s := range m.Meters {
			sum, err := amount.Parse(s.Sum)
			found = found || err == nil && s.Meter == t.slug && s.Rows == t.rows && sum == t.sum
		}
		if !found {
			return fmt.Errorf("the archive's sum of meter %s is not its manifest's", t.slug)
		}
	}
	return nil
}
