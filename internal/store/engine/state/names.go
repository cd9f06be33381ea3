package state

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// namesFirst is a file system on which a marker never outlives what it points to. Pebble writes a new manifest and then
// the marker that names it, and syncs the directory once, after both: a power failure in between may keep the second
// name and lose the first, and the next start would find its database without a manifest. So the directory is synced
// before a marker is made.
//
// A sync of the directory that fails ends the process by fatal, as every failed sync does; Pebble would panic.
type namesFirst struct {
	vfs.FS
	fatal func(format string, args ...any) // does not return
}

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

// OpenDir implements vfs.FS.
func (n namesFirst) OpenDir(name string) (vfs.File, error) {
	f, err := n.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return directory{f, name, n.fatal}, nil
}

type directory struct {
	vfs.File
	name  string
	fatal func(format string, args ...any)
}

func (d directory) Sync() error {
	if err := d.File.Sync(); err != nil {
		d.fatal("sync directory %s: %v", d.name, err)
	}
	return nil
}
