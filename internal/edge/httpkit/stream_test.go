package httpkit

import (
	"testing"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// There is room for so many streams, and for one of a kind that is alone.
func TestStreamsAreBounded(t *testing.T) {
	var s streams
	if err := s.begin("a"); err != nil || s.begin("a") == nil {
		t.Errorf("two of a kind: %v", err)
	}
	for range maxStreams - 1 {
		if err := s.begin(""); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.begin("b"); !problem.Is(err, problem.Conflict) {
		t.Errorf("one too many: %v", err)
	}
	s.end("a")
	if err := s.begin("a"); err != nil {
		t.Error(err)
	}
}
