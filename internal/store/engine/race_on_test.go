//go:build race

package engine

// crashFloor is how many crash points a run must have checked; the race detector makes each some ten times as dear.
const crashFloor = 1_500

// faultStride is how many operations lie between two that fail.
const faultStride = 7

// flipStride is how many of the bits chosen lie between two that are flipped.
const flipStride = 13
