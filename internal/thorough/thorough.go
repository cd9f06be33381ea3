// Package thorough says how much a test does that goes through every operation, every bit or many random lives.
//
// The race detector makes such a test ten times as expensive and finds nothing in its thousandth case that it did not
// find in the first hundred: under the detector the test takes some of the cases, spread over all of them, and without
// it all. make test runs both. The package owns this one choice; no test asks for the detector by itself.
package thorough

// Choose returns how many cases a test takes, or how far apart they lie: raced under the race detector, and otherwise
// whole.
func Choose(raced, whole int) int {
	if underRace {
		return raced
	}
	return whole
}
