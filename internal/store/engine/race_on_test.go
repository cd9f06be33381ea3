//go:build race

package engine

// crashFloor is how many crash points a run must have checked; the race detector makes each some ten times as dear.
const crashFloor = 1_500
