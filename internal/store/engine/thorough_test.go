package engine

import "github.com/tallystick/tallystick/internal/thorough"

var (
	// crashFloor is how many crash points a run must have checked.
	crashFloor = thorough.Choose(700, 12_000)
	// faultStride is how many operations lie between two that fail.
	faultStride = thorough.Choose(7, 1)
	// flipStride is how many of the bits chosen lie between two that are flipped.
	flipStride = thorough.Choose(13, 1)
	// rapidChecks is how many lives and records are tried, unless the command line says so.
	rapidChecks = thorough.Choose(25, 100)
	// sliceCrashes bounds the crashes while slicing that are looked at.
	sliceCrashes = thorough.Choose(20, 1000)
	// pruneStride is how many power failures while pruning lie between two that are looked at: odd, since they come in
	// pairs.
	pruneStride = thorough.Choose(3, 1)
)
