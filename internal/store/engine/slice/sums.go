package slice

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"
)

// A slice is read here and there, by footers, indexes, dictionaries and pages, and Parquet checks only some of these.
// So every file has another beside it with a sum of each of its blocks, and nothing is read from a block that does not
// match.

const sumBytes = 8

func sumsName(name string) string { return name + ".sums" }

func hashSums(b []byte) uint64 { return xxh3.Hash(b) }

// summer gathers what is written into blocks and sums them.
type summer struct {
	to    io.Writer
	size  int // of a block
	block []byte
	sums  []uint64
	total int64
}

func (s *summer) Write(b []byte) (int, error) {
	if s.block == nil {
		s.block = make([]byte, 0, s.size)
	}
	for rest := b; len(rest) > 0; {
		n := min(len(rest), s.size-len(s.block))
		s.block = append(s.block, rest[:n]...)
		rest = rest[n:]
		if len(s.block) == s.size {
			if err := s.flush(); err != nil {
				return len(b) - len(rest), err
			}
		}
	}
	return len(b), nil
}

// flush writes the block as it is; only the last one is short.
func (s *summer) flush() error {
	if len(s.block) == 0 {
		return nil
	}
	s.sums = append(s.sums, xxh3.Hash(s.block))
	s.total += int64(len(s.block))
	_, err := s.to.Write(s.block)
	s.block = s.block[:0]
	return err
}

func (s *summer) encode() []byte {
	b := make([]byte, 0, len(s.sums)*sumBytes)
	for _, n := range s.sums {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// checkedFile reads whole blocks and compares each with its sum.
type checkedFile struct {
	name string
	file vfs.File
	size int64
	sums []uint64

	block int64 // bytes of each but the last
}

// openChecked opens a file and its sums.
func openChecked(fs vfs.FS, name string, meta *fileMeta, block int) (*checkedFile, error) {
	sums, err := readSums(fs, name, meta, int64(block))
	if err != nil {
		return nil, err
	}
	f, err := fs.Open(name, vfs.RandomReadsOption)
	if err != nil {
		return nil, lost(name, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open slice %s: %w", name, err), f.Close())
	}
	if info.Size() != meta.Bytes {
		return nil, errors.Join(&Damage{File: name,
			Reason: fmt.Sprintf("has %d bytes, %d were written", info.Size(), meta.Bytes)}, f.Close())
	}
	return &checkedFile{name: name, file: f, size: meta.Bytes, sums: sums, block: int64(block)}, nil
}

func readSums(fs vfs.FS, name string, meta *fileMeta, block int64) ([]uint64, error) {
	f, err := fs.Open(sumsName(name))
	if err != nil {
		return nil, lost(sumsName(name), err)
	}
	blocks := (meta.Bytes + block - 1) / block
	b := make([]byte, blocks*sumBytes)
	if _, err := io.ReadFull(f, b); err != nil {
		_ = f.Close()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, &Damage{File: sumsName(name), Reason: "too short"}
		}
		return nil, &Damage{File: sumsName(name), Reason: "cannot be read: " + err.Error()}
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("close %s: %w", sumsName(name), err)
	}
	if hashSums(b) != meta.Sums {
		return nil, &Damage{File: sumsName(name), Reason: "fails its checksum"}
	}
	sums := make([]uint64, blocks)
	for i := range sums {
		sums[i] = binary.LittleEndian.Uint64(b[i*sumBytes:])
	}
	return sums, nil
}

// ReadAt implements io.ReaderAt. Reads are rounded out to whole blocks.
func (c *checkedFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= c.size {
		return 0, io.EOF
	}
	want := p
	if int64(len(p)) > c.size-off {
		want = p[:c.size-off]
	}
	first := off / c.block * c.block
	end := min((off+int64(len(want))+c.block-1)/c.block*c.block, c.size)
	buf := make([]byte, end-first)
	if n, err := c.file.ReadAt(buf, first); n < len(buf) {
		if err == nil || errors.Is(err, io.EOF) {
			return 0, &Damage{File: c.name, Offset: first, Reason: "ends too early"}
		}
		return 0, &Damage{File: c.name, Offset: first, Reason: "cannot be read: " + err.Error()}
	}
	for at := first; at < end; at += c.block {
		if xxh3.Hash(buf[at-first:min(at-first+c.block, end-first)]) != c.sums[at/c.block] {
			return 0, &Damage{File: c.name, Offset: at, Reason: "fails its checksum"}
		}
	}
	copy(want, buf[off-first:])
	if len(want) < len(p) {
		return len(want), io.EOF
	}
	return len(p), nil
}

// verify reads everything.
func (c *checkedFile) verify(report func(bytes int64) error) error {
	var last [1]byte
	for at := int64(0); at < c.size; at += c.block {
		end := min(at+c.block, c.size)
		if _, err := c.ReadAt(last[:], end-1); err != nil {
			return err
		}
		if err := report(end - at); err != nil {
			return err
		}
	}
	return nil
}

func (c *checkedFile) Close() error { return c.file.Close() }
