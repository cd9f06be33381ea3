package keyindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A run file is: blocks of entries, the filter, the fence, the footer. A block is
// addressed by its number alone, so nothing but the fence has to be known to read
// it. docs/formats.md says what every byte means.
const (
	runMagic   = "tallyrun"
	runVersion = 1

	blockBytes  = 4096
	entryBytes  = 26
	blockKeys   = (blockBytes - 4) / entryBytes
	fenceBytes  = 8
	footerBytes = 80

	// maxRunKeys keeps every product of sizes far from overflow; it is 500 times
	// the largest run of an index of 4 billion keys.
	maxRunKeys = 1 << 35
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// runMeta is what the manifest knows of a run and the footer has to confirm.
type runMeta struct {
	Number    uint64
	Tier      uint32
	Lo, Width uint32 // partitions [Lo, Lo+Width)
	Count     uint64
	FooterCRC uint32
}

type footer struct {
	runMeta
	StoreID      [16]byte
	Partitions   uint32
	FilterBlocks uint64
	FilterCRC    uint32
	FenceCRC     uint32
}

func blocksFor(count uint64) uint64 { return (count + blockKeys - 1) / blockKeys }

func (f *footer) fileSize() int64 {
	b := blocksFor(f.Count)
	return int64(b*blockBytes + f.FilterBlocks*filterBlockBytes + b*fenceBytes + footerBytes)
}

func (f *footer) encode() []byte {
	b := make([]byte, 0, footerBytes)
	b = append(b, runMagic...)
	b = binary.LittleEndian.AppendUint32(b, runVersion)
	b = binary.LittleEndian.AppendUint32(b, f.Tier)
	b = append(b, f.StoreID[:]...)
	b = binary.LittleEndian.AppendUint64(b, f.Number)
	b = binary.LittleEndian.AppendUint32(b, f.Partitions)
	b = binary.LittleEndian.AppendUint32(b, f.Lo)
	b = binary.LittleEndian.AppendUint32(b, f.Width)
	b = binary.LittleEndian.AppendUint64(b, f.Count)
	b = binary.LittleEndian.AppendUint64(b, f.FilterBlocks)
	b = binary.LittleEndian.AppendUint32(b, f.FilterCRC)
	b = binary.LittleEndian.AppendUint32(b, f.FenceCRC)
	f.FooterCRC = crc32.Checksum(b, castagnoli)
	return binary.LittleEndian.AppendUint32(b, f.FooterCRC)
}

// decodeFooter reads the last bytes of a run. Every version keeps the length of the
// footer, its magic, version and CRC in place, so an unknown one can be distinguished from damage.
func decodeFooter(name string, at int64, b []byte) (footer, error) {
	var f footer
	if len(b) != footerBytes || string(b[:8]) != runMagic {
		return f, &Damage{File: name, Offset: at, Reason: "no run footer"}
	}
	f.FooterCRC = binary.LittleEndian.Uint32(b[76:])
	if crc32.Checksum(b[:76], castagnoli) != f.FooterCRC {
		return f, &Damage{File: name, Offset: at, Reason: "run footer fails its CRC"}
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != runVersion {
		return f, &VersionError{File: name, Version: v, Known: runVersion}
	}
	f.Tier = binary.LittleEndian.Uint32(b[12:])
	copy(f.StoreID[:], b[16:])
	f.Number = binary.LittleEndian.Uint64(b[32:])
	f.Partitions = binary.LittleEndian.Uint32(b[40:])
	f.Lo = binary.LittleEndian.Uint32(b[44:])
	f.Width = binary.LittleEndian.Uint32(b[48:])
	f.Count = binary.LittleEndian.Uint64(b[52:])
	f.FilterBlocks = binary.LittleEndian.Uint64(b[60:])
	f.FilterCRC = binary.LittleEndian.Uint32(b[68:])
	f.FenceCRC = binary.LittleEndian.Uint32(b[72:])
	if f.Count == 0 || f.Count > maxRunKeys || f.FilterBlocks == 0 || f.FilterBlocks > maxRunKeys ||
		!validRange(f.Partitions, f.Lo, f.Width) {
		return f, &Damage{File: name, Offset: at, Reason: "run footer holds impossible sizes"}
	}
	return f, nil
}

// blockCRC covers a block and its place: the right bytes at the wrong block number or
// in the wrong file are damage too.
func blockCRC(number uint64, block uint64, body []byte) uint32 {
	place := uint32(number)*0x9e3779b1 ^ uint32(number>>32) ^ uint32(block)
	return crc32.Update(place, castagnoli, body)
}

// run is an open, immutable run: its filter and fence in memory, its blocks on disk.
type run struct {
	footer
	name  string
	file  vfs.File
	size  int64
	shift uint // Hi << shift spreads the run's partitions over all 64 bits
	filt  filter
	fence []uint64 // Hi of the first entry of each block

	flushed  uint64 // newest table number in it, 0 for what was there at Open
	views    int    // guarded by Index.mu: views that hold it
	obsolete bool   // guarded by Index.mu: the manifest no longer names it
}

// openRun reads all but the blocks, and checks it against what the manifest says.
func openRun(fs vfs.FS, name string, want runMeta, storeID [16]byte, partitions uint32) (*run, error) {
	f, err := fs.Open(name, vfs.RandomReadsOption)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, &Damage{File: name, Reason: "the manifest names this run, but it is missing", Err: err}
		}
		return nil, fmt.Errorf("open key index run: %w", err)
	}
	r, err := loadRun(f, name, want, storeID, partitions)
	if err != nil {
		_ = f.Close() // was only read, and err says why
		return nil, err
	}
	return r, nil
}

func loadRun(f vfs.File, name string, want runMeta, storeID [16]byte, partitions uint32) (*run, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("size of key index run %s: %w", name, err)
	}
	at := info.Size() - footerBytes
	if at < 0 {
		return nil, &Damage{File: name, Offset: info.Size(), Reason: "shorter than a footer"}
	}
	tail, err := readSection(f, name, at, footerBytes)
	if err != nil {
		return nil, err
	}
	ft, err := decodeFooter(name, at, tail)
	if err != nil {
		return nil, err
	}
	if ft.StoreID != storeID {
		return nil, &ForeignError{File: name, Got: ft.StoreID, Want: storeID}
	}
	if ft.runMeta != want || ft.Partitions != partitions || ft.fileSize() != info.Size() {
		return nil, &Damage{File: name, Offset: at, Reason: "not the run that the manifest names"}
	}
	r := &run{footer: ft, name: name, file: f, size: info.Size(), shift: rangeShift(partitions, ft.Width)}
	if err := r.readFilter(); err != nil {
		return nil, err
	}
	if err := r.readFence(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *run) blocks() uint64      { return blocksFor(r.Count) }
func (r *run) filterOffset() int64 { return int64(r.blocks()) * blockBytes }
func (r *run) fenceOffset() int64  { return r.filterOffset() + int64(r.FilterBlocks)*filterBlockBytes }
func (r *run) memory() int64       { return int64(len(r.filt))*filterBlockBytes + int64(len(r.fence))*8 }

func (r *run) readFilter() error {
	b, err := readSection(r.file, r.name, r.filterOffset(), int64(r.FilterBlocks)*filterBlockBytes)
	if err != nil {
		return err
	}
	if crc32.Checksum(b, castagnoli) != r.FilterCRC {
		return &Damage{File: r.name, Offset: r.filterOffset(), Reason: "filter fails its CRC"}
	}
	r.filt = decodeFilter(b)
	return nil
}

func (r *run) readFence() error {
	b, err := readSection(r.file, r.name, r.fenceOffset(), int64(r.blocks())*fenceBytes)
	if err != nil {
		return err
	}
	if crc32.Checksum(b, castagnoli) != r.FenceCRC {
		return &Damage{File: r.name, Offset: r.fenceOffset(), Reason: "fence fails its CRC"}
	}
	r.fence = make([]uint64, r.blocks())
	for i := range r.fence {
		r.fence[i] = binary.LittleEndian.Uint64(b[i*fenceBytes:])
	}
	return nil
}

func readSection(f vfs.File, name string, at, n int64) ([]byte, error) {
	b := make([]byte, n)
	if got, err := f.ReadAt(b, at); int64(got) < n {
		return nil, readFailure(name, at+int64(got), err)
	}
	return b, nil
}

// readFailure distinguishes a file that is too short, which is damage, from a disk that
// does not answer, which may pass.
func readFailure(name string, at int64, err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Damage{File: name, Offset: at, Reason: "file ends too early"}
	}
	return fmt.Errorf("read key index file %s at offset %d: %w", name, at, err)
}

var blockPool = sync.Pool{New: func() any { return new([blockBytes]byte) }}

// find looks h up in the blocks. Hi alone orders the fence, so entries that share a
// Hi may begin in the block before the one whose fence equals it.
func (r *run) find(h Hash) (Found, error) {
	b := r.firstFenceNotBelow(h.Hi)
	if b > 0 {
		b--
	}
	buf := blockPool.Get().(*[blockBytes]byte)
	defer blockPool.Put(buf)
	for ; b < len(r.fence) && r.fence[b] <= h.Hi; b++ {
		if err := r.readBlock(uint64(b), buf); err != nil {
			return Found{}, err
		}
		if f, ok := searchBlock(buf, r.keysIn(uint64(b)), h); ok {
			return f, nil
		}
	}
	return Found{}, nil
}

func (r *run) firstFenceNotBelow(hi uint64) int {
	lo, up := 0, len(r.fence)
	for lo < up {
		mid := int(uint(lo+up) >> 1)
		if r.fence[mid] < hi {
			lo = mid + 1
		} else {
			up = mid
		}
	}
	return lo
}

// blocksBetween are the blocks [begin, end) that may hold keys from one Hi to another.
func (r *run) blocksBetween(from, last uint64) (begin, end uint64) {
	begin, end = uint64(max(r.firstFenceNotBelow(from), 1)-1), r.blocks()
	if last < math.MaxUint64 {
		end = uint64(r.firstFenceNotBelow(last + 1))
	}
	return begin, max(begin, end)
}

func (r *run) keysIn(block uint64) int {
	return int(min(blockKeys, r.Count-block*blockKeys))
}

func (r *run) readBlock(b uint64, buf *[blockBytes]byte) error {
	at := int64(b) * blockBytes
	if got, err := r.file.ReadAt(buf[:], at); got < blockBytes {
		return readFailure(r.name, at+int64(got), err)
	}
	return r.checkBlock(b, buf[:])
}

func (r *run) checkBlock(b uint64, buf []byte) error {
	if blockCRC(r.Number, b, buf[:blockBytes-4]) != binary.LittleEndian.Uint32(buf[blockBytes-4:blockBytes]) {
		return &Damage{File: r.name, Offset: int64(b) * blockBytes, Reason: "block fails its CRC"}
	}
	return nil
}

func searchBlock(buf *[blockBytes]byte, n int, h Hash) (Found, bool) {
	lo, up := 0, n
	for lo < up {
		mid := int(uint(lo+up) >> 1)
		if entryHash(buf[mid*entryBytes:]).less(h) {
			lo = mid + 1
		} else {
			up = mid
		}
	}
	if lo == n {
		return Found{}, false
	}
	e := decodeEntry(buf[lo*entryBytes:])
	return Found{Seq: e.Seq, Check: e.Check, OK: true}, e.Hash == h
}

func entryHi(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

func entryHash(b []byte) Hash {
	return Hash{Hi: binary.LittleEndian.Uint64(b), Lo: binary.LittleEndian.Uint64(b[8:])}
}

func decodeEntry(b []byte) Entry {
	return Entry{
		Hash:  entryHash(b),
		Check: binary.LittleEndian.Uint32(b[16:]),
		Seq:   uint64(binary.LittleEndian.Uint32(b[20:])) | uint64(binary.LittleEndian.Uint16(b[24:]))<<32,
	}
}

func encodeEntry(b []byte, e *Entry) {
	binary.LittleEndian.PutUint64(b, e.Hash.Hi)
	binary.LittleEndian.PutUint64(b[8:], e.Hash.Lo)
	binary.LittleEndian.PutUint32(b[16:], e.Check)
	binary.LittleEndian.PutUint32(b[20:], uint32(e.Seq))
	binary.LittleEndian.PutUint16(b[24:], uint16(e.Seq>>32))
}
