package keyindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	manifestName    = "MANIFEST"
	manifestTemp    = "MANIFEST.tmp"
	manifestMagic   = "tallykey"
	manifestVersion = 1

	manifestHead = 60
	manifestRun  = 32
	manifestTail = 4
	// maxManifest refuses to read what cannot be a manifest: 100,000 runs are a
	// hundred times what an index of a billion keys needs.
	maxManifest = manifestHead + 100_000*manifestRun + manifestTail

	// defaultPartitions is also the most files that keys of a high tier are split into:
	// 64 keeps merges to 16 million keys until the index passes 4 billion.
	defaultPartitions = 64
	maxPartitions     = 256
)

// manifest is the whole truth about which files are the index and how far into the
// journal they reach. It is replaced as one, never edited.
type manifest struct {
	StoreID    [16]byte
	Seed       uint64
	Partitions uint32
	Next       uint64 // no file with this number or a higher one is named
	Mark       Mark
	Runs       []runMeta
}

func (m manifest) clone() manifest {
	m.Runs = slices.Clone(m.Runs)
	return m
}

// validPartitions: powers of four, because each tier is a quarter as wide.
func validPartitions(p uint32) bool {
	return p > 0 && p <= maxPartitions && bits.OnesCount32(p) == 1 && bits.TrailingZeros32(p)%2 == 0
}

func validRange(partitions, lo, width uint32) bool {
	return validPartitions(partitions) && validPartitions(width) &&
		width <= partitions && lo < partitions && lo%width == 0
}

func rangeShift(partitions, width uint32) uint {
	return uint(bits.TrailingZeros32(partitions) - bits.TrailingZeros32(width))
}

func (m *manifest) encode() []byte {
	b := make([]byte, 0, manifestHead+len(m.Runs)*manifestRun+manifestTail)
	b = append(b, manifestMagic...)
	b = binary.LittleEndian.AppendUint32(b, manifestVersion)
	b = binary.LittleEndian.AppendUint32(b, m.Partitions)
	b = append(b, m.StoreID[:]...)
	b = binary.LittleEndian.AppendUint64(b, m.Seed)
	b = binary.LittleEndian.AppendUint64(b, m.Next)
	b = binary.LittleEndian.AppendUint32(b, m.Mark.Segment)
	b = binary.LittleEndian.AppendUint32(b, m.Mark.Offset)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Runs)))
	for _, r := range m.Runs {
		b = binary.LittleEndian.AppendUint64(b, r.Number)
		b = binary.LittleEndian.AppendUint32(b, r.Tier)
		b = binary.LittleEndian.AppendUint32(b, r.Lo)
		b = binary.LittleEndian.AppendUint32(b, r.Width)
		b = binary.LittleEndian.AppendUint64(b, r.Count)
		b = binary.LittleEndian.AppendUint32(b, r.FooterCRC)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeManifest checks the CRC before the version: every version keeps magic,
// version and a final CRC of all before it, so an unknown one can be distinguished from damage.
func decodeManifest(name string, b []byte) (manifest, error) {
	var m manifest
	if len(b) < manifestHead+manifestTail || string(b[:8]) != manifestMagic {
		return m, &Damage{File: name, Reason: "not a key index manifest"}
	}
	end := len(b) - manifestTail
	if crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]) {
		return m, &Damage{File: name, Offset: int64(end), Reason: "manifest fails its CRC"}
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != manifestVersion {
		return m, &VersionError{File: name, Version: v, Known: manifestVersion}
	}
	m.Partitions = binary.LittleEndian.Uint32(b[12:])
	copy(m.StoreID[:], b[16:])
	m.Seed = binary.LittleEndian.Uint64(b[32:])
	m.Next = binary.LittleEndian.Uint64(b[40:])
	m.Mark = Mark{Segment: binary.LittleEndian.Uint32(b[48:]), Offset: binary.LittleEndian.Uint32(b[52:])}
	n := int(binary.LittleEndian.Uint32(b[56:]))
	if !validPartitions(m.Partitions) || end-manifestHead != n*manifestRun {
		return m, &Damage{File: name, Offset: 56, Reason: "manifest holds impossible sizes"}
	}
	m.Runs = make([]runMeta, n)
	seen := make(map[uint64]bool, n)
	for i := range m.Runs {
		at := manifestHead + i*manifestRun
		r := runMeta{
			Number:    binary.LittleEndian.Uint64(b[at:]),
			Tier:      binary.LittleEndian.Uint32(b[at+8:]),
			Lo:        binary.LittleEndian.Uint32(b[at+12:]),
			Width:     binary.LittleEndian.Uint32(b[at+16:]),
			Count:     binary.LittleEndian.Uint64(b[at+20:]),
			FooterCRC: binary.LittleEndian.Uint32(b[at+28:]),
		}
		if r.Number >= m.Next || seen[r.Number] || !validRange(m.Partitions, r.Lo, r.Width) {
			return m, &Damage{File: name, Offset: int64(at), Reason: "manifest names an impossible run"}
		}
		seen[r.Number] = true
		m.Runs[i] = r
	}
	return m, nil
}

// readManifest returns os.ErrNotExist, wrapped, when there is none.
func readManifest(fs vfs.FS, name string) (manifest, error) {
	f, err := fs.Open(name)
	if err != nil {
		return manifest{}, fmt.Errorf("open key index manifest: %w", err)
	}
	defer func() { _ = f.Close() }() // was only read
	b, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return manifest{}, fmt.Errorf("read key index manifest: %w", err)
	}
	if len(b) > maxManifest {
		return manifest{}, &Damage{File: name, Offset: maxManifest, Reason: "too long for a manifest"}
	}
	return decodeManifest(name, b)
}

// writeManifest replaces the manifest. inDoubt reports that an error came at or after
// the rename: a crash may then bring back either the old or the new one, and the files
// of both must stay.
func writeManifest(fs vfs.FS, dir string, m *manifest) (inDoubt bool, err error) {
	temp := fs.PathJoin(dir, manifestTemp)
	if err := writeSynced(fs, temp, m.encode()); err != nil {
		return false, err
	}
	// The entries of new runs must be durable before a manifest that names them.
	if err := syncDir(fs, dir); err != nil {
		return false, err
	}
	if err := fs.Rename(temp, fs.PathJoin(dir, manifestName)); err != nil {
		return true, fmt.Errorf("replace key index manifest: %w", err)
	}
	if err := syncDir(fs, dir); err != nil {
		return true, err
	}
	return false, nil
}

func writeSynced(fs vfs.FS, name string, b []byte) error {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create key index manifest: %w", err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write key index manifest: %w", err)
	}
	return nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open key index directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync key index directory: %w", err)
	}
	return nil
}

func isMissing(err error) bool { return errors.Is(err, os.ErrNotExist) }
