package doctest

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	kindPage  = "docs/adding-a-kind.md"
	kindPatch = "docs/sample-kind/notes.patch"
	// maxKindFiles is how many files a new kind of entity may touch, beside tests.
	maxKindFiles = 6
)

// Given the patch that the page on new kinds speaks of, then it has few files, none of them in a store, and they are
// those that the page names; and when it is applied to a copy of this tree, then that builds, keeps the rules of the
// house, and serves what its document says.
func TestASampleKindIsAddedWithoutTouchingAStore(t *testing.T) {
	touched := patched(t)
	var named []string
	for _, line := range strings.Split(blocks(t, kindPage)[0].text, "\n") {
		if words := strings.Fields(line); len(words) > 0 {
			named = append(named, words[0])
		}
	}
	slices.Sort(named)
	if !slices.Equal(touched, named) {
		t.Errorf("%s touches %v, and %s names %v", kindPatch, touched, kindPage, named)
	}
	files := 0
	packages := map[string]bool{}
	for _, file := range touched {
		if strings.HasPrefix(file, "internal/store/") {
			t.Errorf("%s touches %s: a store knows no kind", kindPatch, file)
		}
		if !strings.HasSuffix(file, "_test.go") {
			files++
		}
		if strings.HasSuffix(file, ".go") {
			packages["./"+path.Dir(file)] = true
		}
	}
	if files > maxKindFiles {
		t.Errorf("%s touches %d files beside tests, more than %d", kindPatch, files, maxKindFiles)
	}

	dir := copyOfTree(t)
	patch, err := filepath.Abs(filepath.Join(root, kindPatch))
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "git", "apply", patch)
	overlay := overlayOf(t, dir, touched)
	run(t, root, "go", "build", overlay, "-o", os.DevNull, "./cmd/tallystick")
	run(t, root, "go", append([]string{"vet", overlay}, slices.Sorted(maps.Keys(packages))...)...)
	run(t, root, "go", "test", overlay, "-vet=off", "./internal/core/kinds")
	out := run(t, root, "go", "test", overlay, "-vet=off", "-v", "-run", "^(TestContract|TestNotes)$",
		"./internal/edge/httpapi")
	for _, want := range []string{"--- PASS: TestContract", "--- PASS: TestNotes"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	house := filepath.Join(t.TempDir(), "house.test")
	run(t, root, "go", "test", "-c", "-o", house, "./internal/archtest")
	run(t, filepath.Join(dir, "internal/archtest"), house)
}

// overlayOf has the go command see the patched files in place of those of this tree. Built so, and not in the copy,
// all that does not depend on the patch comes from the build cache, which knows packages by their folder.
func overlayOf(t *testing.T, dir string, touched []string) (flag string) {
	t.Helper()
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for _, file := range touched {
		if same(t, filepath.Join(here, file), filepath.Join(dir, file)) {
			t.Fatalf("the patch did not change %s", file)
		}
		replace[filepath.Join(here, file)] = filepath.Join(dir, file)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return "-overlay=" + name
}

// patched are the files that the patch makes or changes, sorted.
func patched(t *testing.T) (files []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, kindPatch))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if file, ok := strings.CutPrefix(line, "+++ b/"); ok {
			files = append(files, file)
		} else if strings.HasPrefix(line, "+++ ") || strings.HasPrefix(line, "rename ") {
			t.Errorf("a kind takes nothing away: %s", line)
		}
	}
	slices.Sort(files)
	return files
}

// copyOfTree copies what belongs to the repository, committed or not yet, and returns where.
func copyOfTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range strings.Split(run(t, root, "git", "ls-files", "-z", "-co", "--exclude-standard"), "\x00") {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) {
			continue // taken away, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func same(t *testing.T, a, b string) bool {
	t.Helper()
	was, err := os.ReadFile(a)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	is, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(was, is)
}

// run returns what a command prints, which must succeed.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	// In a folder of its own the copy is no repository, whatever is around it: git would look for its files there.
	c.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
