package state

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// namesFirst is a file system on which a marker never outlives what it points to. Pebble writes a new manifest and then the
// marker that names it, and syncs the directory once, after both: a power failure in between may keep the second name and lose the
// first, and the next start would find its database without a manifest. So the directory is synced before a marker is made.
type namesFirst struct{ vfs.FS }

const markerPrefix = "marker."

func (n namesFirst) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(n.PathBase(name), markerPrefix) {
		if err := n.syncDir(n.PathDir(name)); err != nil {
			return nil, fmt.Errorf("make names durable before %s: %w", name, err)
		}
	}
	return n.FS.Create(name, category)
}

func (n namesFirst) syncDir(dir string) error {
	d, err := n.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
