package slice

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

const (
	manifestName    = "MANIFEST"
	manifestTemp    = "MANIFEST.tmp"
	manifestMagic   = "tallycut"
	manifestVersion = 1

	manifestHead = 8 + 4 + 16 + 8 + 8 + 4 + 4
	manifestHole = 4 + 8 + 8
	manifestFile = 8 + 4 + 4 + 8 + 8 + 8 + 8 + 8 + 8
	manifestTail = 4
	// maxManifest refuses to read what cannot be a manifest: more files than a century of months has.
	maxManifest = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// manifest is the whole truth about which files are the slices and how much of the journal they hold. It is replaced as
// one, never edited. Files and holes of one month never overlap, and between them hold the month's rows up to Covered.
type manifest struct {
	StoreID [16]byte
	Next    uint64 // no file with this number or a higher one is named
	Covered journal.Position
	Holes   []Hole
	Files   []fileMeta
}

// Hole is a part of the journal of which a month's rows are in no file: a file was lost.
type Hole struct {
	Month calendar.Month
	Span
}

// Span is a part of the journal: from a record on, up to another.
type Span struct{ From, To journal.Position }

// Holds reports whether a record lies in the span.
func (s Span) Holds(p journal.Position) bool { return !p.Less(s.From) && p.Less(s.To) }

// fileMeta is a file: one month's rows of a span.
type fileMeta struct {
	Number uint64
	Month  calendar.Month
	Tier   uint32
	Span
	Rows   int64
	Bytes  int64
	Sums   uint64 // of the file of sums
	Digest uint64 // of the rows
}

func (m *manifest) encode() []byte {
	b := make([]byte, 0, manifestHead+len(m.Holes)*manifestHole+len(m.Files)*manifestFile+manifestTail)
	b = append(b, manifestMagic...)
	b = binary.LittleEndian.AppendUint32(b, manifestVersion)
	b = append(b, m.StoreID[:]...)
	b = binary.LittleEndian.AppendUint64(b, m.Next)
	b = appendPosition(b, m.Covered)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Holes)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Files)))
	for _, h := range m.Holes {
		b = binary.LittleEndian.AppendUint32(b, uint32(h.Month))
		b = appendPosition(appendPosition(b, h.From), h.To)
	}
	for _, f := range m.Files {
		b = binary.LittleEndian.AppendUint64(b, f.Number)
		b = binary.LittleEndian.AppendUint32(b, uint32(f.Month))
		b = binary.LittleEndian.AppendUint32(b, f.Tier)
		b = appendPosition(appendPosition(b, f.From), f.To)
		for _, n := range [...]uint64{uint64(f.Rows), uint64(f.Bytes), f.Sums, f.Digest} {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func appendPosition(b []byte, p journal.Position) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, p.Segment), p.Offset)
}

func readPosition(b []byte) journal.Position {
	return journal.Position{Segment: binary.LittleEndian.Uint32(b), Offset: binary.LittleEndian.Uint32(b[4:])}
}

// decodeManifest checks the CRC before the version: every version keeps magic, version and a final CRC of all before
// it.
func decodeManifest(name string, b []byte) (manifest, error) {
	var m manifest
	if len(b) < manifestHead+manifestTail || string(b[:8]) != manifestMagic {
		return m, &Damage{File: name, Reason: "not a manifest of slices"}
	}
	end := len(b) - manifestTail
	if crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]) {
		return m, &Damage{File: name, Offset: int64(end), Reason: "manifest fails its CRC"}
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != manifestVersion {
		return m, &VersionError{File: name, Version: v}
	}
	copy(m.StoreID[:], b[12:])
	m.Next = binary.LittleEndian.Uint64(b[28:])
	m.Covered = readPosition(b[36:])
	holes, files := int(binary.LittleEndian.Uint32(b[44:])), int(binary.LittleEndian.Uint32(b[48:]))
	if end-manifestHead != holes*manifestHole+files*manifestFile {
		return m, &Damage{File: name, Offset: 44, Reason: "manifest holds impossible sizes"}
	}
	for at := manifestHead; at < manifestHead+holes*manifestHole; at += manifestHole {
		m.Holes = append(m.Holes, Hole{calendar.Month(binary.LittleEndian.Uint32(b[at:])),
			Span{readPosition(b[at+4:]), readPosition(b[at+12:])}})
	}
	for at := manifestHead + holes*manifestHole; at < end; at += manifestFile {
		m.Files = append(m.Files, decodeFile(b[at:]))
	}
	return m, m.check(name)
}

func decodeFile(b []byte) fileMeta {
	return fileMeta{
		Number: binary.LittleEndian.Uint64(b), Month: calendar.Month(binary.LittleEndian.Uint32(b[8:])),
		Tier: binary.LittleEndian.Uint32(b[12:]),
		Span: Span{readPosition(b[16:]), readPosition(b[24:])},
		Rows: int64(binary.LittleEndian.Uint64(b[32:])), Bytes: int64(binary.LittleEndian.Uint64(b[40:])),
		Sums: binary.LittleEndian.Uint64(b[48:]), Digest: binary.LittleEndian.Uint64(b[56:]),
	}
}

// check refuses what would count a row twice or read beyond what there can be.
func (m *manifest) check(name string) error {
	bad := func(what string) error { return &Damage{File: name, Reason: "manifest names an impossible " + what} }
	numbers := map[uint64]bool{}
	parts := map[calendar.Month][]Span{}
	for _, h := range m.Holes {
		parts[h.Month] = append(parts[h.Month], h.Span)
	}
	for _, f := range m.Files {
		if f.Number >= m.Next || numbers[f.Number] || f.Rows <= 0 || f.Bytes <= 0 || f.Tier > maxTier {
			return bad("file")
		}
		numbers[f.Number] = true
		parts[f.Month] = append(parts[f.Month], f.Span)
	}
	for month, spans := range parts {
		if month < calendar.MonthOf(calendar.MinMicros) || month > calendar.MonthOf(calendar.MaxMicros) {
			return bad("month")
		}
		sortSpans(spans)
		for i, s := range spans {
			if !s.From.Less(s.To) || m.Covered.Less(s.To) || i > 0 && s.From.Less(spans[i-1].To) {
				return bad("span")
			}
		}
	}
	return nil
}

// readManifest returns os.ErrNotExist, wrapped, when there is none.
func readManifest(fs vfs.FS, name string) (manifest, error) {
	f, err := fs.Open(name)
	if err != nil {
		return manifest{}, fmt.Errorf("open manifest of slices: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return manifest{}, fmt.Errorf("read manifest of slices: %w", err)
	}
	if len(b) > maxManifest {
		return manifest{}, &Damage{File: name, Offset: maxManifest, Reason: "too long for a manifest"}
	}
	return decodeManifest(name, b)
}

// writeManifest replaces the manifest. inDoubt reports that an error came at or after the rename: a crash may then
// bring back either the old or the new one, and the files of both must stay.
func writeManifest(fs vfs.FS, dir string, m *manifest) (inDoubt bool, err error) {
	temp := fs.PathJoin(dir, manifestTemp)
	if err := writeSynced(fs, temp, m.encode()); err != nil {
		return false, err
	}
	// The names of new files must be durable before a manifest that refers to them.
	if err := syncDir(fs, dir); err != nil {
		return false, err
	}
	if err := fs.Rename(temp, fs.PathJoin(dir, manifestName)); err != nil {
		return true, fmt.Errorf("replace manifest of slices: %w", err)
	}
	return true, syncDir(fs, dir)
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open directory of slices: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory of slices: %w", err)
	}
	return nil
}

func isMissing(err error) bool { return errors.Is(err, os.ErrNotExist) }
