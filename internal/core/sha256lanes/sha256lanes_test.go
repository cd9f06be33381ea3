package sha256lanes

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// check hashes messages with a kernel and compares each hash with that of crypto/sha256.
func check(t failer, h *Hasher, messages [][]byte) {
	t.Helper()
	got := make([][Size]byte, len(messages))
	for i, message := range messages {
		if n := copy(h.Next(len(message), &got[i]), message); n != len(message) {
			t.Fatalf("%s: there is space for %d bytes of %d", h.kernel, n, len(message))
		}
	}
	h.Flush()
	for i, message := range messages {
		if got[i] != sha256.Sum256(message) {
			t.Fatalf("%s: the hash of message %d of %d, of %d bytes, is wrong", h.kernel, i, len(messages),
				len(message))
		}
	}
}

// everyKernel runs a test with each kernel of this machine, with two Hashers: one that is used for the first time each
// time, and one that finds what earlier messages left in its buffers.
func everyKernel(t *testing.T, test func(t *testing.T, hashers func() []*Hasher)) {
	for _, kernel := range Kernels() {
		t.Run(kernel.String(), func(t *testing.T) {
			used := New(kernel)
			test(t, func() []*Hasher { return []*Hasher{New(kernel), used} })
		})
	}
}

func TestHashesAreThoseOfTheStandardLibrary(t *testing.T) {
	everyKernel(t, func(t *testing.T, hashers func() []*Hasher) {
		rapid.Check(t, func(t *rapid.T) {
			// A few lengths fill batches, many leave lanes over.
			sizes := rapid.OneOf(
				rapid.SliceOfN(rapid.SampledFrom([]int{0, 55, 65, 197, 200, 1000}), 0, 100),
				rapid.SliceOfN(rapid.IntRange(0, 1000), 0, 100),
				rapid.SliceOfN(rapid.IntRange(maxBlocks*blockSize-20, maxBlocks*blockSize+100), 0, 20),
			).Draw(t, "sizes")
			content := rapid.SliceOfN(rapid.Byte(), 8, 64).Draw(t, "content")
			messages := make([][]byte, len(sizes))
			for i, size := range sizes {
				messages[i] = filled(size, append(content, byte(i)))
			}
			for _, h := range hashers() {
				check(t, h, messages)
			}
		})
	})
}

// filled repeats content up to a length.
func filled(size int, content []byte) []byte {
	return bytes.Repeat(content, size/len(content)+1)[:size]
}

// Lengths at which the mark, the length or a block begins, on every lane, and each with every number of messages.
func TestEveryLengthOnEveryLane(t *testing.T) {
	everyKernel(t, func(t *testing.T, hashers func() []*Hasher) {
		for _, content := range [][]byte{{0}, {0xff}, {0x80}, []byte("the quick brown fox")} {
			for _, size := range []int{0, 1, 3, 4, 55, 56, 63, 64, 65, 119, 120, 127, 128, 183, 184, 1015, 1016, 1024} {
				for count := range 2*maxLanes + 2 {
					messages := make([][]byte, count)
					for i := range messages {
						messages[i] = filled(size, content)
						if size > 0 {
							messages[i][(i*7)%size] ^= byte(i)
						}
					}
					for _, h := range hashers() {
						check(t, h, messages)
					}
				}
			}
		}
	})
}

// A bit that is changed anywhere in one message changes that message's hash and no other.
func TestLanesDoNotTouch(t *testing.T) {
	everyKernel(t, func(t *testing.T, hashers func() []*Hasher) {
		h := hashers()[0]
		const size = 100
		sum := func(lane, at int) []([Size]byte) {
			hashes := make([][Size]byte, maxLanes)
			for i := range hashes {
				message := h.Next(size, &hashes[i])
				clear(message)
				if i == lane {
					message[at/8] |= 1 << (at % 8)
				}
			}
			h.Flush()
			return hashes
		}
		plain := sum(-1, 0)
		for lane := range maxLanes {
			for at := range 8 * size {
				changed := sum(lane, at)
				if changed[lane] == plain[lane] {
					t.Fatalf("bit %d of lane %d does not matter", at, lane)
				}
				changed[lane] = plain[lane]
				if !slices.Equal(changed, plain) {
					t.Fatalf("bit %d of lane %d changes another hash", at, lane)
				}
			}
		}
	})
}

// The kernels read and write unaligned memory, and nothing beyond what they were given.
func TestKernelsStayInsideTheirMemory(t *testing.T) {
	for _, kernel := range Kernels()[1:] {
		for shift := range 70 {
			const blocks, guard = 2, 0xa5
			space := bytes.Repeat([]byte{guard}, shift+kernel.lanes()*blocks*blockSize+100)
			messages := space[shift:][:kernel.lanes()*blocks*blockSize]
			for i := range kernel.lanes() {
				message := messages[i*blocks*blockSize:][:blocks*blockSize]
				copy(message, filled(100, []byte{byte(i), byte(shift)}))
				pad(message, 100)
			}
			before := bytes.Clone(space)
			var hashes [maxLanes][Size]byte
			kernel.sum(&hashes, messages, blocks)
			if !bytes.Equal(space, before) {
				t.Fatalf("%s changes messages", kernel)
			}
			for i, hash := range hashes {
				want := sha256.Sum256(filled(100, []byte{byte(i), byte(shift)}))
				if i >= kernel.lanes() {
					want = [Size]byte{}
				}
				if hash != want {
					t.Fatalf("%s: lane %d of messages that begin at %d: %x", kernel, i, shift, hash)
				}
			}
		}
	}
}

func TestTooFewBytesAreRefused(t *testing.T) {
	for _, kernel := range Kernels() {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s reads beyond its messages", kernel)
				}
			}()
			var hashes [maxLanes][Size]byte
			kernel.sum(&hashes, make([]byte, kernel.lanes()*blockSize), 2)
		}()
	}
}

func TestHashingDoesNotAllocate(t *testing.T) {
	everyKernel(t, func(t *testing.T, hashers func() []*Hasher) {
		h := hashers()[0]
		var hashes [100][Size]byte
		if n := testing.AllocsPerRun(10, func() {
			for i := range hashes {
				h.Next(i*11, &hashes[i])
			}
			h.Flush()
		}); n != 0 {
			t.Fatalf("100 messages allocate %v times", n)
		}
	})
}

func TestTheZeroValueUsesTheBestKernel(t *testing.T) {
	var h Hasher
	check(t, &h, [][]byte{nil, []byte("abc")})
	if h.kernel != best || !slices.Contains(Kernels(), best) {
		t.Fatalf("%s is used, and %s is the best of %v", h.kernel, best, Kernels())
	}
	for _, c := range []struct {
		kernels   []Kernel
		hasSHA    bool
		validated bool
		want      Kernel
	}{
		{[]Kernel{Portable}, false, false, Portable},
		{[]Kernel{Portable, AVX2}, false, false, AVX2},
		{[]Kernel{Portable, AVX2, AVX512}, false, false, AVX512},
		{[]Kernel{Portable, AVX2, AVX512}, true, false, Portable},
		{[]Kernel{Portable, AVX2, AVX512}, false, true, Portable},
	} {
		if got := choose(c.kernels, c.hasSHA, c.validated); got != c.want {
			t.Errorf("%s is chosen, want %+v", got, c)
		}
	}
}

func FuzzSum(f *testing.F) {
	f.Add([]byte{}, uint8(1), uint8(1))
	f.Add(make([]byte, 64), uint8(17), uint8(64))
	f.Add([]byte("message"), uint8(40), uint8(9))
	var hashers []*Hasher
	for _, kernel := range Kernels() {
		hashers = append(hashers, New(kernel))
	}
	f.Fuzz(func(t *testing.T, content []byte, count, step uint8) {
		var messages [][]byte
		for i := range int(count) {
			messages = append(messages, content[min(len(content), i*int(step)%97):])
		}
		for _, h := range hashers {
			check(t, h, messages)
		}
	})
}
