//go:build !race

package engine

// crashFloor is how many crash points a run must have checked.
const crashFloor = 12_000
