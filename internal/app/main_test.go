package app

import (
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tallystick/tallystick/internal/kafkatest"
)

// The scripts run this very binary as tallystick.
func TestMain(m *testing.M) {
	testscript.Main(cleaned{m}, map[string]func(){"tallystick": func() { os.Exit(Main()) }})
}

// cleaned are tests that leave no broker behind.
type cleaned struct{ *testing.M }

func (c cleaned) Run() int {
	code := c.M.Run()
	if err := kafkatest.Cleanup(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}
