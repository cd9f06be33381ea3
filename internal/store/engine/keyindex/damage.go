package keyindex

import (
	"errors"
	"fmt"
)

// ErrClosed is returned by calls that arrive after Close.
var ErrClosed = errors.New("key index is closed")

// errStopped ends background work that Close interrupted; it is never shown.
var errStopped = errors.New("key index is closing")

// Damage says that bytes on disk are not what this package wrote. The index is
// derived from the journal, so the cure is always the same and loses nothing.
type Damage struct {
	File   string
	Offset int64
	Reason string
	Err    error // what the file system said, if it was the one to notice
}

func (d *Damage) Error() string {
	msg := fmt.Sprintf("key index damaged: %s at offset %d: %s", d.File, d.Offset, d.Reason)
	if d.Err != nil {
		msg += ": " + d.Err.Error()
	}
	return msg + ": run `tallystick rebuild`, which makes the key index again from the journal"
}

func (d *Damage) Unwrap() error { return d.Err }

// VersionError names a file that is whole but of a format this program does not
// know. It is no Damage: a newer program can read it.
type VersionError struct {
	File    string
	Version uint32
	Known   uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("key index file %s has format version %d, this program knows %d: "+
		"upgrade tallystick, or run `tallystick rebuild` to make the key index again from the journal",
		e.File, e.Version, e.Known)
}

// ForeignError names an index that belongs to another store: most likely a
// directory was copied or mounted in the wrong place.
type ForeignError struct {
	File      string
	Got, Want [16]byte
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("key index file %s belongs to store %x, not to %x: "+
		"put the right directory in place, or run `tallystick rebuild`", e.File, e.Got, e.Want)
}
