package keyindex

import (
	"fmt"
	"slices"
)

// Verify reads the whole index again and checks what can be checked without the
// journal: every CRC, the order of every run, that each key is in its range, behind
// its fence, in its filter and in the sketch, and that the manifest on disk is the one in use. It
// may run beside everything else; progress, if not nil, is called with bytes after each block, and its error ends it.
func (x *Index) Verify(progress func(done, total int64) error) error {
	if err := x.verifyManifest(); err != nil {
		return err
	}
	v, err := x.pin()
	if err != nil {
		return err
	}
	defer x.unpin(v)
	var done, total int64
	for _, r := range v.runs {
		total += r.size
	}
	for _, r := range v.runs {
		err := x.verifyRun(v, r, func(at int64) error {
			if progress == nil {
				return nil
			}
			return progress(done+at, total)
		})
		if err != nil {
			return err
		}
		done += r.size
	}
	return nil
}

func (x *Index) verifyManifest() error {
	x.commitMu.Lock()
	defer x.commitMu.Unlock()
	path := x.opts.FS.PathJoin(x.opts.Dir, manifestName)
	man, err := readManifest(x.opts.FS, path)
	if isMissing(err) {
		return &Damage{File: path, Reason: "manifest is missing", Err: err}
	}
	if err != nil {
		return err
	}
	// After a replacement that failed half way the one on disk may be newer.
	if len(x.doubtful) == 0 && (man.Seed != x.man.Seed || man.Mark != x.man.Mark ||
		!slices.Equal(man.Runs, x.man.Runs)) {
		return &Damage{File: path, Reason: "not the manifest in use"}
	}
	return nil
}

func (x *Index) verifyRun(v *view, r *run, reached func(at int64) error) error {
	// What was read at Open may have rotted since.
	again, err := openRun(x.opts.FS, r.name, r.runMeta, r.StoreID, r.Partitions)
	if err != nil {
		return err
	}
	defer func() { _ = again.file.Close() }() // was only read
	if !slices.Equal(again.fence, r.fence) || !slices.Equal(again.filt, r.filt) {
		return &Damage{File: r.name, Offset: r.filterOffset(),
			Reason: "filter or fence in memory is not the one on disk"}
	}
	c := newCursor(again)
	var last Hash
	for i := uint64(0); ; i++ {
		more, err := c.more()
		if err != nil {
			return err
		}
		if !more {
			if i != r.Count {
				return &Damage{File: r.name, Offset: r.filterOffset(),
					Reason: fmt.Sprintf("%d keys, not %d", i, r.Count)}
			}
			return reached(r.size)
		}
		if err := verifyEntry(c, i, last, v); err != nil {
			return err
		}
		if i%blockKeys == 0 {
			if err := reached(c.offset()); err != nil {
				return err
			}
		}
		last = entryHash(c.rest)
		c.rest = c.rest[entryBytes:]
	}
}

func verifyEntry(c *cursor, i uint64, last Hash, v *view) error {
	r, h := c.r, entryHash(c.rest)
	var reason string
	switch p := uint32(h.Hi >> v.pshift); {
	case i > 0 && !last.less(h):
		reason = "key out of order"
	case p < r.Lo || p >= r.Lo+r.Width:
		reason = "key outside the range of its run"
	case i%blockKeys == 0 && r.fence[i/blockKeys] != h.Hi:
		reason = "fence does not match its block"
	case r.filt.admits(h.Hi<<r.shift, h.Lo) == 0:
		reason = "key is not in its filter"
	case !v.mayHold(h.Hi):
		reason = "key is not in the sketch"
	default:
		return nil
	}
	return &Damage{File: r.name, Offset: c.offset(), Reason: reason}
}
