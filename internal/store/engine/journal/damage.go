package journal

import "fmt"

// Damage says that the files do not hold what was made durable in them. It is never repaired here: a guess would become
// a bill.
type Damage struct {
	Path    string // the segment file
	Segment uint32
	Offset  uint32 // where in the file it shows
	What    string // what is wrong
	Hint    string // what to do about it
}

func (d *Damage) Error() string {
	return fmt.Sprintf("journal damaged: %s at offset %d: %s: %s", d.Path, d.Offset, d.What, d.Hint)
}

// VersionError says that a segment is in a format this program does not know. Nothing is wrong with it.
type VersionError struct {
	Path    string
	Version uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("journal segment %s has format version %d, this program knows up to version %d: "+
		"start the newer release that wrote it; nothing was changed", e.Path, e.Version, prunedVersion)
}

const (
	hintRestore = "keep a copy of the data directory, then restore this segment from a backup or replica"
	hintForeign = "put back the segment that belongs to this store; it may have been copied from another data directory"
	hintShorter = "the journal was cut, replaced or restored from an older copy: restore the whole data directory " +
		"from one moment"
)

func (j *Journal) damage(p Position, what, hint string) *Damage {
	return &Damage{Path: j.path(p.Segment), Segment: p.Segment, Offset: p.Offset, What: what, Hint: hint}
}
