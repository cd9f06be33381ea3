package retention

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Bounds of what is written. A file stays well below what a bucket takes in one request; a group of rows is what is
// held in memory for each month that is being written.
const (
	fileRows  = 2_000_000
	groupRows = 16 << 10
	atOnce    = 256
)

// written is the months of one tenant, in files that are not on the storage yet.
type written struct {
	months map[calendar.Month]*monthFiles
}

func (w *written) inOrder() []*monthFiles {
	return slices.SortedFunc(maps.Values(w.months), func(a, b *monthFiles) int { return cmp.Compare(a.month, b.month) })
}

// remove forgets the files. It may be called whatever happened.
func (w *written) remove() {
	for _, m := range w.months {
		for _, f := range m.files {
			_ = f.temp.Close()
			_ = os.Remove(f.temp.Name())
		}
	}
}

// monthFiles is one month being written.
type monthFiles struct {
	dir    string
	dry    bool // only counts
	slugs  map[uint32]string
	tenant tenant.Tenant
	month  calendar.Month
	files  []*monthFile
	some   []record

	rows, stay  uint64
	first, last uint64 // of the rows that will leave
	end         uint64 // of all rows
	lastAt      calendar.Micros
	meters      map[uint32]*taken
	sections    uint64
	section     uint64 // the last one's first row
	leaves      hash.Hash
	hasher      ledger.Hasher
	keys        *tree.Keys
}

// taken is what one meter took from the rows.
type taken struct {
	slug string
	rows uint64
	sum  amount.Amount
}

type monthFile struct {
	temp        *os.File
	writer      *parquet.GenericWriter[record]
	sum         hash.Hash
	rows, held  uint64
	first, last uint64
	size        int64
}

// write reads the tenant's ledger once from its first section on, which proves the tree, and puts the rows of the
// months that are due into files. A dry run only counts them.
func (r *run) write(id string, d *due) (*written, error) {
	w := &written{months: map[calendar.Month]*monthFiles{}}
	err := r.store.View(r.ctx, id, func(v store.View) error {
		t, err := store.Tenant(v)
		if err != nil {
			return err
		}
		slugs, err := store.Slugs(v)
		if err != nil {
			return err
		}
		keys, err := tree.NewKeys(t.TreeKeys)
		if err != nil {
			return err
		}
		var hasher ledger.Hasher
		differs := false
		whole := tree.NewCheck(v.Tree(), func(tree.Tile, tree.Hash) { differs = true })
		at := place{}
		err = v.PrunedSections(1, func(s *ledger.Section) error {
			at.first, at.rows = s.First, s.Count()
			if err := hasher.Check(whole, keys, s); err != nil {
				return err
			}
			for i := range s.Rows {
				if s.Rows[i].Kind() != ledger.EventRow || !d.months[s.Rows[i].Event.Month()] {
					continue
				}
				e := s.Rows[i].Event
				m := w.months[e.Month()]
				if m == nil {
					m = &monthFiles{dir: r.o.Temp, dry: r.o.DryRun, tenant: t, month: e.Month(), slugs: slugs,
						meters: map[uint32]*taken{}, leaves: sha256.New(), keys: keys}
					w.months[m.month] = m
				}
				if err := m.add(&s.Rows[i], &at); err != nil {
					return fmt.Errorf("row %d: %w", s.Rows[i].Seq, err)
				}
			}
			return r.ctx.Err()
		})
		if err != nil {
			return err
		}
		got, err := whole.Tree()
		if err == nil && (differs || got != v.Head().Tree) {
			err = errors.New("the rows do not add up to the ledger's tree: run `tallystick verify`; nothing was " +
				"archived")
		}
		return err
	})
	for _, m := range w.months {
		err = errors.Join(err, m.finish())
	}
	return w, err
}

func (m *monthFiles) add(r *ledger.Row, at *place) error {
	m.rows++
	m.end = r.Seq
	if r.Event.Status() == usage.Adjusted {
		m.stay++
	} else {
		if m.first == 0 {
			m.first = r.Seq
		}
		m.last = r.Seq
	}
	m.lastAt = max(m.lastAt, r.At)
	for i := range r.Event.Outcomes {
		o := &r.Event.Outcomes[i]
		t := m.meters[o.Meter]
		if t == nil {
			t = &taken{slug: m.slugs[o.Meter]}
			m.meters[o.Meter] = t
		}
		t.rows++
		var ok bool
		if t.sum, ok = t.sum.Add(o.Value); !ok {
			return errors.New("the sum of a meter overflows")
		}
	}
	if m.section != at.first {
		m.section = at.first
		m.sections++
	}
	leaf := m.hasher.Leaf(m.keys, r)
	m.leaves.Write(leaf[:])
	if m.dry {
		return nil
	}
	m.some = append(m.some, recordOf(r, at))
	if len(m.some) < atOnce {
		return nil
	}
	return m.flush()
}

// flush writes the records that were gathered, into the next file when this one is long enough.
func (m *monthFiles) flush() error {
	if len(m.some) == 0 {
		return nil
	}
	if n := len(m.files); n == 0 || m.files[n-1].rows >= fileRows {
		if err := m.next(); err != nil {
			return err
		}
	}
	f := m.files[len(m.files)-1]
	if _, err := f.writer.Write(m.some); err != nil {
		return err
	}
	if f.rows == 0 {
		f.first = m.some[0].Seq
	}
	f.last = m.some[len(m.some)-1].Seq
	f.rows += uint64(len(m.some))
	f.held += uint64(len(m.some))
	m.some = m.some[:0]
	if f.held < groupRows {
		return nil
	}
	f.held = 0
	return f.writer.Flush()
}

func (m *monthFiles) next() error {
	if err := m.closeLast(); err != nil {
		return err
	}
	temp, err := os.CreateTemp(m.dir, "tallystick-archive-*")
	if err != nil {
		return err
	}
	f := &monthFile{temp: temp, sum: sha256.New()}
	f.writer = parquet.NewGenericWriter[record](io.MultiWriter(temp, f.sum), parquet.Compression(&parquet.Zstd),
		parquet.CreatedBy("tallystick", "1", ""))
	m.files = append(m.files, f)
	return nil
}

func (m *monthFiles) closeLast() error {
	if len(m.files) == 0 {
		return nil
	}
	f := m.files[len(m.files)-1]
	if err := f.writer.Close(); err != nil {
		return err
	}
	info, err := f.temp.Stat()
	if err == nil {
		f.size = info.Size()
	}
	return err
}

func (m *monthFiles) finish() error { return errors.Join(m.flush(), m.closeLast()) }

func (m *monthFiles) bytes() (n int64) {
	for _, f := range m.files {
		n += f.size
	}
	return n
}

// put carries the month's files to the storage and, when all are there, its manifest.
func (r *run) put(m *monthFiles) (manifest, error) {
	dir := folder(&m.tenant)
	out := manifestJSON{Version: manifestVersion, Tenant: m.tenant.ID, Ledger: ledgerID(&m.tenant),
		Month: m.month.String(), Rows: m.rows, Stay: m.stay,
		Sections: m.sections, Leaves: hex.EncodeToString(m.leaves.Sum(nil)), Meters: m.sums()}
	for i, f := range m.files {
		sum := f.sum.Sum(nil)
		name := fmt.Sprintf("%s/%s-%04d-%x.parquet", dir, m.month, i+1, sum[:8])
		if err := r.storage.Put(r.ctx, name, f.temp); err != nil {
			return manifest{}, fmt.Errorf("put %s: %w", name, err)
		}
		out.Files = append(out.Files, fileJSON{Name: name, Rows: f.rows, FirstSeq: f.first, LastSeq: f.last,
			Bytes: f.size, SHA256: hex.EncodeToString(sum)})
	}
	out.FirstSeq, out.LastSeq = out.Files[0].FirstSeq, out.Files[len(out.Files)-1].LastSeq
	b, named, err := out.encode(dir)
	if err != nil {
		return named, err
	}
	if err := r.putBytes(named.name, b, m.dir); err != nil {
		return named, fmt.Errorf("put %s: %w", named.name, err)
	}
	return named, nil
}

func (r *run) putBytes(name string, b []byte, dir string) error {
	temp, err := os.CreateTemp(dir, "tallystick-archive-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = temp.Close()
		_ = os.Remove(temp.Name())
	}()
	if _, err := temp.Write(b); err != nil {
		return err
	}
	return r.storage.Put(r.ctx, name, temp)
}

func (m *monthFiles) sums() (out []meterJSON) {
	for _, t := range m.meters {
		out = append(out, meterJSON{t.slug, t.rows, t.sum.String()})
	}
	slices.SortFunc(out, func(a, b meterJSON) int { return cmp.Compare(a.Meter, b.Meter) })
	return out
}
