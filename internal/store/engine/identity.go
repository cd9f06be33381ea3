package engine

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The file STORE names the store, so that files of two stores are never taken for one another. It is one line of text:
//
//	tallystick store v1 <32 hex digits> <8 hex digits of the CRC32C of what stands before>
const (
	identityFile   = "STORE"
	identityPrefix = "tallystick store v1 "
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// identify reads the store's id, or gives a new store one.
func identify(fs vfs.FS, dir string) ([16]byte, error) {
	var id [16]byte
	path := fs.PathJoin(dir, identityFile)
	f, err := fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return newIdentity(fs, dir, path)
	}
	if err != nil {
		return id, fmt.Errorf("open %s: %w", path, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, 1024))
	if err = errors.Join(err, f.Close()); err != nil {
		return id, fmt.Errorf("read %s: %w", path, err)
	}
	want := len(identityLine(id))
	if len(b) >= len(identityPrefix) && string(b[:18]) == identityPrefix[:18] &&
		string(b[:len(identityPrefix)]) != identityPrefix {
		return id, fmt.Errorf("%s is of another version (%q): use a newer tallystick", path, b[:min(len(b), 20)])
	}
	if len(b) == want {
		if _, err := hex.Decode(id[:], b[len(identityPrefix):len(identityPrefix)+32]); err == nil &&
			string(b) == identityLine(id) {
			return id, nil
		}
	}
	return id, fmt.Errorf("%s is damaged: restore it from a backup of this data directory; the journal cannot be "+
		"read without it", path)
}

func identityLine(id [16]byte) string {
	line := identityPrefix + hex.EncodeToString(id[:])
	return fmt.Sprintf("%s %08x\n", line, crc32.Checksum([]byte(line), castagnoli))
}

// newIdentity writes the file so that it is there whole or not at all. A directory with a journal but no file is not a
// new store.
func newIdentity(fs vfs.FS, dir, path string) (id [16]byte, err error) {
	if names, err := fs.List(fs.PathJoin(dir, journalDir)); err == nil && len(names) > 0 {
		return id, fmt.Errorf("%s is missing although there is a journal: restore it from a backup of this data "+
			"directory", path)
	}
	if _, err := io.ReadFull(rand.Reader, id[:]); err != nil {
		return id, err
	}
	temp := path + ".tmp"
	f, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return id, fmt.Errorf("create %s: %w", temp, err)
	}
	_, err = io.WriteString(f, identityLine(id))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return id, fmt.Errorf("write %s: %w", temp, err)
	}
	if err := fs.Rename(temp, path); err != nil {
		return id, fmt.Errorf("rename %s: %w", temp, err)
	}
	d, err := fs.OpenDir(dir)
	if err != nil {
		return id, err
	}
	return id, errors.Join(d.Sync(), d.Close())
}

// makeDir makes the data directory and those above it, and leaves their names durable: a power failure must not take
// back a directory whose files were synced. Where a store has its name already, that was done before.
func makeDir(fs vfs.FS, dir string) error {
	if _, err := fs.Stat(fs.PathJoin(dir, identityFile)); err == nil {
		return nil
	}
	parent := fs.PathDir(dir)
	if _, err := fs.Stat(parent); errors.Is(err, os.ErrNotExist) {
		if err := makeDir(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	d, err := fs.OpenDir(parent)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
