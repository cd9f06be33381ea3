package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

const (
	formatVersion = 1
	// prunedVersion is a segment of which only some is left, see prune.go.
	prunedVersion = 2
	magic         = "TALLYJNL"

	// headerBytes fit one disk sector of 512 bytes, so a header is written whole or not at all.
	headerBytes = 64
	// headerBlock keeps the header in a page and disk block of its own: no write of a record rewrites it.
	headerBlock = 4096

	// HeaderSize is how many bytes of a record come before its payload; AppendRecord fills them in.
	HeaderSize = 12

	// minSegmentBytes leaves a block for records.
	minSegmentBytes = 2 * headerBlock

	segmentSuffix = ".journal"
	tempSuffix    = ".tmp"
	// segmentDigits holds any uint32, so names sort as numbers do.
	segmentDigits = 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func segmentName(number uint32) string {
	return fmt.Sprintf("%0*d%s", segmentDigits, number, segmentSuffix)
}

// parseSegmentName is the inverse of segmentName; ok is false for every other name.
func parseSegmentName(name string) (number uint32, ok bool) {
	digits, found := strings.CutSuffix(name, segmentSuffix)
	if !found || len(digits) != segmentDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n == 0 {
		return 0, false
	}
	return uint32(n), true
}

func isTempName(name string) bool {
	segment, found := strings.CutSuffix(name, tempSuffix)
	if !found {
		return false
	}
	_, ok := parseSegmentName(segment)
	return ok
}

// segmentHeader opens every segment that has ever been current.
type segmentHeader struct {
	version     uint32
	number      uint32
	storeID     [16]byte
	size        uint32 // length of this file
	previousEnd uint32 // where the last record of the previous segment ends; 0 in the first segment
	before      uint32 // of a pruned segment: the length of the file before; else 0
}

// recordsEnd bounds the offsets of records.
func (h segmentHeader) recordsEnd() uint32 {
	if h.version == prunedVersion {
		return h.before
	}
	return h.size
}

// Magic, version and check keep their places in every version to come, so that a newer segment is recognized as one and
// not taken for damage.
func (h segmentHeader) encode() [headerBytes]byte {
	var b [headerBytes]byte
	copy(b[0:8], magic)
	binary.LittleEndian.PutUint32(b[8:], h.version)
	binary.LittleEndian.PutUint32(b[12:], h.number)
	copy(b[16:32], h.storeID[:])
	binary.LittleEndian.PutUint32(b[32:], h.size)
	binary.LittleEndian.PutUint32(b[36:], h.previousEnd)
	binary.LittleEndian.PutUint32(b[40:], h.before)
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	return b
}

// decodeSegmentHeader reads a header that is expected to be intact. ok is false when its magic or check is wrong; a
// version this program does not know is left for the caller to refuse.
func decodeSegmentHeader(b []byte) (h segmentHeader, ok bool) {
	if len(b) < headerBytes || string(b[0:8]) != magic {
		return h, false
	}
	if binary.LittleEndian.Uint32(b[60:]) != crc32.Checksum(b[:60], castagnoli) {
		return h, false
	}
	h.version = binary.LittleEndian.Uint32(b[8:])
	h.number = binary.LittleEndian.Uint32(b[12:])
	copy(h.storeID[:], b[16:32])
	h.size = binary.LittleEndian.Uint32(b[32:])
	h.previousEnd = binary.LittleEndian.Uint32(b[36:])
	h.before = binary.LittleEndian.Uint32(b[40:])
	return h, true
}

// checksums computes the checks of one store's records.
type checksums struct{ seed uint32 }

func newChecksums(storeID [16]byte) checksums {
	return checksums{seed: crc32.Checksum(storeID[:], castagnoli)}
}

// header is the check of a record header: it holds for this length, at this place, in this store, and nowhere else.
func (c checksums) header(p Position, length uint32) uint32 {
	var b [12]byte
	binary.LittleEndian.PutUint32(b[0:], p.Segment)
	binary.LittleEndian.PutUint32(b[4:], p.Offset)
	binary.LittleEndian.PutUint32(b[8:], length)
	return crc32.Update(c.seed, castagnoli, b[:])
}

// seal fills in the header of the record that record is, for the place p. Its payload must not be empty.
func (c checksums) seal(p Position, record []byte) {
	length := uint32(len(record) - HeaderSize)
	header := c.header(p, length)
	binary.LittleEndian.PutUint32(record[0:], length)
	binary.LittleEndian.PutUint32(record[4:], header)
	binary.LittleEndian.PutUint32(record[8:], crc32.Update(header, castagnoli, record[HeaderSize:]))
}

// recordHeader is the decoded front of a record.
type recordHeader struct {
	length     uint32
	payloadSum uint32
	headerSum  uint32
}

// open decodes a record header at p, of which room bytes of file are left for header and payload together. ok is false
// when it is not the header of a record at that place.
func (c checksums) open(p Position, room uint32, b []byte) (h recordHeader, ok bool) {
	h.length = binary.LittleEndian.Uint32(b[0:])
	h.headerSum = binary.LittleEndian.Uint32(b[4:])
	h.payloadSum = binary.LittleEndian.Uint32(b[8:])
	if room < HeaderSize || h.length == 0 || h.length > room-HeaderSize {
		return h, false
	}
	return h, h.headerSum == c.header(p, h.length)
}

func (h recordHeader) matches(payload []byte) bool {
	return h.payloadSum == crc32.Update(h.headerSum, castagnoli, payload)
}

// zeroBlock is compared against because comparing memory is several times faster than looking at each word of it, and a
// start looks at up to two segments of zeros.
var zeroBlock [4096]byte

// nonzero is the index of the first byte of b that is not zero, or len(b).
func nonzero(b []byte) int {
	i := 0
	for i < len(b) {
		n := min(len(b)-i, len(zeroBlock))
		if !bytes.Equal(b[i:i+n], zeroBlock[:n]) {
			break
		}
		i += n
	}
	for i < len(b) && b[i] == 0 {
		i++
	}
	return i
}
