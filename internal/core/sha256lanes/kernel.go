package sha256lanes

import (
	"crypto/fips140"
	"fmt"
	"slices"
)

// Kernel is a way to hash: how many messages side by side, and with which instructions.
type Kernel uint8

const (
	// fastest is the one that a Hasher's zero value uses.
	fastest Kernel = iota
	// Portable hashes one message after the other, with crypto/sha256.
	Portable
	// AVX2 hashes 8 side by side.
	AVX2
	// AVX512 hashes 16 side by side. It needs the parts F and BW.
	AVX512
)

func (k Kernel) String() string {
	switch k {
	case Portable:
		return "portable"
	case AVX2:
		return "AVX2"
	case AVX512:
		return "AVX-512"
	}
	return fmt.Sprintf("Kernel(%d)", uint8(k))
}

func (k Kernel) lanes() int {
	switch k {
	case AVX512:
		return 16
	case AVX2:
		return 8
	}
	return 1
}

// fewest is from how many messages on the kernel is faster than crypto/sha256 with one after the other, as
// BenchmarkFewMessages measured it. Lanes that are left over hash what was there before. Portable has one lane, so it
// never runs.
func (k Kernel) fewest() int {
	switch k {
	case AVX512:
		return 2
	case AVX2:
		return 3
	}
	return k.lanes() + 1
}

var (
	available, hasSHA = detect()
	best              = choose(available, hasSHA, fips140.Enabled())
)

// choose picks the fastest. Where the processor has instructions for SHA-256, crypto/sha256 uses them. Where a
// validated module is demanded, only crypto/sha256 is one.
func choose(kernels []Kernel, hasSHA, validated bool) Kernel {
	if hasSHA || validated {
		return Portable
	}
	return kernels[len(kernels)-1]
}

// Kernels are those that this machine can run, Portable first. They are for tests and benchmarks: a Hasher's zero value
// uses the one that is fastest.
func Kernels() []Kernel { return slices.Clone(available) }
