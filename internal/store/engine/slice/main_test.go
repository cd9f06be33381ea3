package slice

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// Nothing here has a goroutine of its own.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "25"); err != nil { // before the command line is read, which may set it again
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
