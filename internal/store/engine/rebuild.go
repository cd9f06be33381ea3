package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Rebuild makes the derived files again from the journal alone. The old ones are moved aside and removed at the end;
// when the journal cannot be replayed they are moved back, because a start may still get on with them.
//
// A crash in between loses nothing. Moving is a rename, so a directory is there whole or not at all, and a start makes
// again what is not there: without the state it replays everything, without the index too, and with the new ones half
// way it goes on from their checkpoint. What was moved aside is then only in the way, and the next rebuild removes it.
func Rebuild(o Options) (err error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if _, err := o.FS.Stat(o.FS.PathJoin(o.Dir, journalDir)); err != nil {
		return fmt.Errorf("there is no journal to rebuild from: %w", err)
	}
	held, err := lock(o.FS, o.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	if err := removeMoved(o.FS, o.Dir); err != nil {
		return err
	}
	if err := exchange(o.FS, o.Dir, "", "1"); err != nil {
		return fmt.Errorf("move the old files aside: %w", err)
	}
	o.locked = true
	if err := replayAll(o); err != nil {
		return errors.Join(err, putBack(o.FS, o.Dir))
	}
	return removeMoved(o.FS, o.Dir)
}

// replayAll opens the store, which replays the journal, and leaves the derived files as far as it.
func replayAll(o Options) error {
	e, err := Open(o)
	if err != nil {
		return err
	}
	return errors.Join(e.Settle(context.Background()), e.Close())
}

// putBack undoes the move. Files made since are moved out of the way first: removing them takes many steps.
func putBack(fs vfs.FS, dir string) error {
	err := exchange(fs, dir, "", "2")
	if err == nil {
		err = exchange(fs, dir, "1", "")
	}
	if err == nil {
		err = removeMoved(fs, dir)
	}
	if err != nil {
		return fmt.Errorf("put the old files back: %w", err)
	}
	return nil
}

const movedMark = ".old-"

func movedName(name, mark string) string {
	if mark == "" {
		return name
	}
	return name + movedMark + mark
}

// exchange renames the derived directories that exist, from one mark to another.
func exchange(fs vfs.FS, dir, from, to string) error {
	for _, name := range []string{stateDir, indexDir, slicesDir} {
		err := fs.Rename(fs.PathJoin(dir, movedName(name, from)), fs.PathJoin(dir, movedName(name, to)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return syncDir(fs, dir)
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// removeState removes the state, which takes many steps: it is moved aside first, so that it is there whole or not at
// all.
func removeState(fs vfs.FS, dir string) error {
	if err := removeMoved(fs, dir); err != nil {
		return err
	}
	if err := fs.Rename(fs.PathJoin(dir, stateDir), fs.PathJoin(dir, movedName(stateDir, "1"))); err != nil {
		return err
	}
	if err := syncDir(fs, dir); err != nil {
		return err
	}
	return removeMoved(fs, dir)
}

// removeMoved removes what this or an earlier rebuild moved aside.
func removeMoved(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("list data directory: %w", err)
	}
	for _, name := range names {
		base, mark, moved := strings.Cut(name, movedMark)
		if _, err := strconv.Atoi(mark); err != nil || !moved ||
			base != stateDir && base != indexDir && base != slicesDir {
			continue
		}
		if err := fs.RemoveAll(fs.PathJoin(dir, name)); err != nil {
			return fmt.Errorf("remove what was moved aside: %w", err)
		}
	}
	return nil
}
