package app

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts run this very binary as tallystick.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tallystick": func() { os.Exit(Main()) }})
}
