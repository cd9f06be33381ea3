package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// A folder holds what was asked for, and a folder for each tenant with its parts:
//
//	export.json
//	acme/events-000000000001-000000731204.parquet
//
// The numbers are those of the first and the last row that were looked at, so parts follow one another without a gap. A
// part that is not whole has another ending and is thrown away by the next run.
const (
	askedFile  = "export.json"
	unfinished = ".unfinished"
)

// version numbers how a format is written: a folder does not mix two. CSV has apostrophes before texts like =1 since
// its second.
func (f Format) version() int {
	if f == CSV {
		return 2
	}
	return 1
}

// asked is what the folder is an export of. One that goes on must ask for the same.
type asked struct {
	Version int    `json:"version"`
	Kind    Kind   `json:"kind"`
	Format  Format `json:"format"`
	Filter  Filter `json:"filter"`
}

type folder struct {
	run  *run
	part *part
}

// part is a file in the making.
type part struct {
	encoder
	file  *os.File
	dir   string
	first uint64
	rows  int
}

func newFolder(r *run) (*folder, error) {
	if err := os.MkdirAll(r.options.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder: %w", err)
	}
	want, err := json.MarshalIndent(asked{r.options.Format.version(), r.options.Kind, r.options.Format,
		r.options.Filter}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", askedFile, err)
	}
	want = append(want, '\n')
	path := filepath.Join(r.options.Dir, askedFile)
	have, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &folder{run: r}, writeWhole(path, want)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", askedFile, err)
	case string(have) != string(want):
		return nil, problem.New(problem.Conflict,
			"%s holds an export of something else, as its %s says: choose another folder", r.options.Dir, askedFile)
	}
	return &folder{run: r}, nil
}

// writeWhole gives a file its name only when all of it is on disk.
func writeWhole(path string, content []byte) error {
	f, err := os.Create(path + unfinished)
	if err != nil {
		return fmt.Errorf("make %s: %w", filepath.Base(path), err)
	}
	_, err = f.Write(content)
	return named(f, path, err)
}

// named ends a file and gives it its name, unless writing it failed.
func named(f *os.File, path string, failed error) error {
	if failed == nil {
		failed = f.Sync()
	}
	if err := errors.Join(failed, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("name %s: %w", filepath.Base(path), err)
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

func (f *folder) dir(tenant string) string { return filepath.Join(f.run.options.Dir, tenant) }

// partName matches a whole part.
var partName = regexp.MustCompile(`^(?:events|changes)-([0-9]{12,})-([0-9]{12,})\.[a-z]+$`)

// resume finds the last part. A gap before it means that a part was taken away: what follows cannot be trusted to be
// all.
func (f *folder) resume(tenant string) (uint64, error) {
	dir := f.dir(tenant)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("make the folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("look for parts: %w", err)
	}
	type span struct{ first, last uint64 }
	var spans []span
	for _, e := range entries {
		if filepath.Ext(e.Name()) == unfinished {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return 0, fmt.Errorf("remove what an earlier run left unfinished: %w", err)
			}
			continue
		}
		if m := partName.FindStringSubmatch(e.Name()); m != nil {
			first, _ := strconv.ParseUint(m[1], 10, 64) // digits only
			last, _ := strconv.ParseUint(m[2], 10, 64)
			spans = append(spans, span{first, last})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return int(min(1, max(-1, int64(a.first)-int64(b.first)))) })
	var after uint64
	for _, s := range spans {
		if s.first != after+1 || s.last < s.first {
			return 0, problem.New(problem.Conflict,
				"%s: rows %d to %d are missing among its parts: export into an empty folder", dir, after+1, s.first-1)
		}
		after = s.last
	}
	return after, nil
}

func (f *folder) write(b *exported, r Row) error {
	if f.full() {
		seq, err := r.seq()
		if err != nil {
			return err
		}
		if err := f.endPart(b, seq-1); err != nil {
			return err
		}
	}
	if err := f.begin(b, b.after+1); err != nil {
		return err
	}
	f.part.rows++
	return f.part.encoder.write(b, r)
}

// begin opens a part that will hold what was looked at from row first on.
func (f *folder) begin(b *exported, first uint64) error {
	if f.part != nil {
		return nil
	}
	dir := f.dir(b.Tenant)
	file, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%012d%s", f.run.options.Kind, first, unfinished)))
	if err != nil {
		return fmt.Errorf("make a part: %w", err)
	}
	e, err := newEncoder(file, f.run.options.Kind, f.run.options.Format)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.part = &part{encoder: e, file: file, dir: dir, first: first}
	return nil
}

func (f *folder) reached(b *exported, seq uint64) error {
	if !f.full() {
		return nil
	}
	return f.endPart(b, seq)
}

// full reports whether the part takes no more rows.
func (f *folder) full() bool { return f.part != nil && f.part.rows >= f.run.options.PartRows }

// finish ends the last part. A tenant of whom nothing was wanted gets an empty part, which says that it was looked at.
func (f *folder) finish(b *exported, seq uint64) error {
	if b.after >= seq {
		return nil
	}
	if err := f.begin(b, b.after+1); err != nil {
		return err
	}
	return f.endPart(b, seq)
}

func (f *folder) endPart(b *exported, last uint64) error {
	p := f.part
	f.part = nil
	b.after = last
	f.run.report.Parts++
	name := fmt.Sprintf("%s-%012d-%012d.%s", f.run.options.Kind, p.first, last, f.run.options.Format)
	return named(p.file, filepath.Join(p.dir, name), p.encoder.close())
}

// end lets go of a part that a failure left unfinished; the next run throws it away.
func (f *folder) end() error {
	if f.part == nil {
		return nil
	}
	return f.part.file.Close()
}
