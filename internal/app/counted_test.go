package app

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// numbered is a number that a message puts before a plural by itself, which is wrong when it is one.
var numbered = regexp.MustCompile(`%d [a-z]{2,}s\b`)

func TestNoCommandSaysOneRows(t *testing.T) {
	for n, want := range map[int]string{0: "0 rows", 1: "1 row", 2: "2 rows"} {
		if got := counted(n, "row"); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range numbered.FindAll(text, -1) {
			t.Errorf("%s: %q: use counted", name, found)
		}
	}
}
