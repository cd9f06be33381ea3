package keyindex

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const runSuffix = ".run"

func runName(number uint64) string { return fmt.Sprintf("%016x%s", number, runSuffix) }

// runNumber reads back what runName wrote; any other name is not ours to touch.
func runNumber(name string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(name, runSuffix), 16, 64)
	return n, err == nil && name == runName(n)
}

// load reads the manifest and opens its runs, or creates an empty index where there
// is nothing yet.
func load(o Options) (manifest, []*run, error) {
	if err := o.FS.MkdirAll(o.Dir, 0o755); err != nil {
		return manifest{}, nil, fmt.Errorf("create key index directory: %w", err)
	}
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return manifest{}, nil, fmt.Errorf("list key index directory: %w", err)
	}
	path := o.FS.PathJoin(o.Dir, manifestName)
	man, err := readManifest(o.FS, path)
	if isMissing(err) {
		man, err = create(o, path, names)
	}
	if err != nil {
		return manifest{}, nil, err
	}
	if man.StoreID != o.StoreID {
		return manifest{}, nil, &ForeignError{File: path, Got: man.StoreID, Want: o.StoreID}
	}
	var runs []*run
	for _, meta := range man.Runs {
		name := o.FS.PathJoin(o.Dir, runName(meta.Number))
		r, err := openRun(o.FS, name, meta, man.StoreID, man.Partitions)
		if err != nil {
			for _, r := range runs {
				_ = r.file.Close() // was only read, and err says why
			}
			return manifest{}, nil, err
		}
		r.flushed = firstTable
		runs = append(runs, r)
	}
	removeOrphans(o.FS, o.Dir, names, man)
	return man, runs, nil
}

// create makes an empty index. No run is ever written before the first manifest is
// durable, so a run without a manifest means that the manifest was lost.
func create(o Options, path string, names []string) (manifest, error) {
	for _, name := range names {
		if _, ok := runNumber(name); ok {
			return manifest{}, &Damage{File: path, Reason: "manifest is missing but runs are there"}
		}
	}
	seed, err := randomSeed(o.Rand)
	if err != nil {
		return manifest{}, err
	}
	man := manifest{StoreID: o.StoreID, Seed: seed, Partitions: defaultPartitions, Next: 1}
	if err := syncDir(o.FS, o.FS.PathDir(o.Dir)); err != nil {
		return manifest{}, err
	}
	if _, err := writeManifest(o.FS, o.Dir, &man); err != nil {
		return manifest{}, err
	}
	return man, nil
}

// removeOrphans removes what a crash left behind. A file that cannot be removed does
// no harm, and the next Open tries again.
func removeOrphans(fs vfs.FS, dir string, names []string, man manifest) {
	named := make(map[uint64]bool, len(man.Runs))
	for _, r := range man.Runs {
		named[r.Number] = true
	}
	for _, name := range names {
		n, ok := runNumber(name)
		if ok && !named[n] || name == manifestTemp {
			_ = fs.Remove(fs.PathJoin(dir, name))
		}
	}
}
