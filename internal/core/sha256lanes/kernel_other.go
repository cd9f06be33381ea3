//go:build !amd64

package sha256lanes

// detect finds nothing: crypto/sha256 uses the instructions for SHA-256 that most processors of other kinds have.
func detect() (kernels []Kernel, hasSHA bool) { return []Kernel{Portable}, false }

func (k Kernel) sum(*[maxLanes][Size]byte, []byte, int) {
	panic("sha256lanes: " + k.String() + " hashes one message at a time")
}
