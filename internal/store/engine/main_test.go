package engine

import (
	"testing"

	"go.uber.org/goleak"
)

// A closed engine leaves no goroutine behind, whatever it went through.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
