package sha256lanes

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"
)

// BenchmarkBlocks hashes messages of 4 blocks with each kernel, all lanes in use, and with crypto/sha256 alone. They
// run in turns, and the least time of each is reported: on a busy machine only that can be compared.
func BenchmarkBlocks(b *testing.B) {
	const blocks, size, messages = 4, 197, 64
	hashes := make([][Size]byte, messages)
	message := make([]byte, size)
	names := []string{"crypto/sha256"}
	ways := []func(){func() {
		for i := range hashes {
			hashes[i] = sha256.Sum256(message)
		}
	}}
	for _, kernel := range Kernels() {
		h := New(kernel)
		names = append(names, kernel.String())
		ways = append(ways, func() {
			for i := range hashes {
				copy(h.Next(size, &hashes[i]), message)
			}
			h.Flush()
		})
	}
	for i, least := range inTurns(b, ways) {
		b.ReportMetric(float64(least.Nanoseconds())/(blocks*messages), names[i]+"-ns/block")
	}
}

// BenchmarkFewMessages shows from how many messages on a kernel is as fast as crypto/sha256: see fewest.
func BenchmarkFewMessages(b *testing.B) {
	const blocks, size, times = 4, 197, 10
	message := make([]byte, size)
	padded := make([]byte, maxLanes*blocks*blockSize)
	var hashes [maxLanes][Size]byte
	names, ways := []string{}, []func(){}
	for count := 1; count <= 5; count++ {
		names = append(names, fmt.Sprintf("crypto/sha256,%d", count))
		ways = append(ways, func() {
			for range times * count {
				hashes[0] = sha256.Sum256(message)
			}
		})
	}
	for _, kernel := range Kernels()[1:] {
		names = append(names, kernel.String())
		ways = append(ways, func() {
			for range times {
				kernel.sum(&hashes, padded, blocks)
			}
		})
	}
	for i, least := range inTurns(b, ways) {
		b.ReportMetric(float64(least.Nanoseconds())/times, names[i]+"-ns")
	}
}

// inTurns does each thing once a turn and returns the least time that each took.
func inTurns(b *testing.B, do []func()) []time.Duration {
	least := make([]time.Duration, len(do))
	for b.Loop() {
		for i := range do {
			start := time.Now()
			do[i]()
			if took := time.Since(start); least[i] == 0 || took < least[i] {
				least[i] = took
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of all together: says nothing
	return least
}
