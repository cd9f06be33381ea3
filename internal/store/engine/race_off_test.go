//go:build !race

package engine

// crashFloor is how many crash points a run must have checked.
const crashFloor = 12_000

// faultStride is how many operations lie between two that fail.
const faultStride = 1

// flipStride is how many of the bits chosen lie between two that are flipped.
const flipStride = 1

// rapidChecks is how many lives and records are tried, unless the command line says so.
const rapidChecks = "100"

// sliceCrashes bounds the crashes while slicing that are looked at.
const sliceCrashes = 1000
