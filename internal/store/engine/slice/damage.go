package slice

import (
	"errors"
	"fmt"
	"os"
)

// ErrClosed is returned by calls that arrive after Close.
var ErrClosed = errors.New("slices are closed")

// Damage says that bytes on disk are not what this package wrote. Slices are derived from the journal, which gives them
// back.
type Damage struct {
	File   string
	Offset int64
	Reason string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("slice damaged: %s at offset %d: %s: it is set aside in the folder %s and made again; nothing "+
		"is lost",
		d.File, d.Offset, d.Reason, asideDir)
}

// lost turns the absence of a file that must be there into damage.
func lost(name string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return &Damage{File: name, Reason: "is missing"}
	}
	return fmt.Errorf("open slice: %w", err)
}

// VersionError names a manifest that is whole but of a format that this program does not know.
type VersionError struct {
	File    string
	Version uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has format version %d, this program knows %d: upgrade tallystick, or run `tallystick "+
		"rebuild` to make the slices again from the journal",
		e.File, e.Version, manifestVersion)
}
