package slice

import (
	"flag"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallystick/tallystick/internal/thorough"
)

// Nothing here has a goroutine of its own.
func TestMain(m *testing.M) {
	// before the command line is read, which may set it again
	if err := flag.Set("rapid.checks", strconv.Itoa(thorough.Choose(10, 25))); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
