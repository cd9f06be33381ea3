package sha256lanes

// What CPUID and XGETBV report, by the bits of Intel's manual, volume 2.
const (
	leafFeatures = 1
	leafExtended = 7

	ecxOSXSAVE = 1 << 27
	ecxAVX     = 1 << 28

	ebxAVX2     = 1 << 5
	ebxAVX512F  = 1 << 16
	ebxSHA      = 1 << 29
	ebxAVX512BW = 1 << 30

	// The operating system keeps these registers when it switches from one program to another.
	xcrAVX    = 0x06
	xcrAVX512 = 0xe6
)

// detect returns what the processor and the operating system can run, the fastest last, and whether the processor has
// instructions for SHA-256. The standard library knows this too, but does not say.
func detect() (kernels []Kernel, hasSHA bool) {
	kernels = []Kernel{Portable}
	if most, _, _ := cpuid(0, 0); most < leafExtended {
		return kernels, false
	}
	_, _, features := cpuid(leafFeatures, 0)
	_, extended, _ := cpuid(leafExtended, 0)
	hasSHA = extended&ebxSHA != 0
	if features&ecxOSXSAVE == 0 || features&ecxAVX == 0 {
		return kernels, hasSHA
	}
	kept := xgetbv()
	if kept&xcrAVX == xcrAVX && extended&ebxAVX2 != 0 {
		kernels = append(kernels, AVX2)
	}
	const wide = ebxAVX512F | ebxAVX512BW
	if kept&xcrAVX512 == xcrAVX512 && extended&wide == wide {
		kernels = append(kernels, AVX512)
	}
	return kernels, hasSHA
}

func cpuid(leaf, subleaf uint32) (eax, ebx, ecx uint32)

func xgetbv() uint32

// sum8 hashes 8 padded messages of as many blocks each, which stand one behind the other.
//
//go:noescape
func sum8(hashes *[maxLanes][Size]byte, messages *byte, blocks int, n *numbers)

// sum16 hashes 16.
//
//go:noescape
func sum16(hashes *[maxLanes][Size]byte, messages *byte, blocks int, n *numbers)

// sum hashes as many messages as the kernel has lanes.
func (k Kernel) sum(hashes *[maxLanes][Size]byte, messages []byte, blocks int) {
	// Of a message that is not all there, the kernel would read what stands behind it in memory.
	_ = messages[k.lanes()*blocks*blockSize-1]
	switch k {
	case AVX512:
		sum16(hashes, &messages[0], blocks, &sha256Numbers)
	case AVX2:
		sum8(hashes, &messages[0], blocks, &sha256Numbers)
	default:
		panic("sha256lanes: " + k.String() + " hashes one message at a time")
	}
}

// numbers are what the kernels need beside messages. They know where in it each is.
type numbers struct {
	constants [64]uint32
	initial   [8]uint32
	swap      [16]byte // for VPSHUFB: turns the bytes of four words around
}

// The constants and the initial hash are those of FIPS 180-4, sections 4.2.2 and 5.3.3: the first 32 bits of the
// fractional parts of the cube roots of the first 64 primes, and of the square roots of the first 8.
var sha256Numbers = numbers{
	constants: [64]uint32{
		0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
		0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
		0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
		0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
		0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
		0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
		0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
		0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
	},
	initial: [8]uint32{
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
	},
	swap: [16]byte{3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12},
}
