//go:build race

package engine

// crashFloor is how many crash points a run must have checked; the race detector makes each ten times as expensive.
const crashFloor = 700

// faultStride is how many operations lie between two that fail.
const faultStride = 7

// flipStride is how many of the bits chosen lie between two that are flipped.
const flipStride = 13

// rapidChecks is how many lives and records are tried, unless the command line says so.
const rapidChecks = "25"

// sliceCrashes bounds the crashes while slicing that are looked at.
const sliceCrashes = 60
