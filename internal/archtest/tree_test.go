package archtest

import (
	"strings"
	"testing"
	"testing/fstest"
)

// A tree that cannot be read whole is an error, never a tree without findings.
func TestLoadRefusesWhatItCannotJudge(t *testing.T) {
	module := &fstest.MapFile{Data: []byte("module m.test/m\n")}
	cases := []struct {
		name string
		fsys fstest.MapFS
		want string
	}{
		{"no module file", fstest.MapFS{}, "go.mod"},
		{"no module line", fstest.MapFS{"go.mod": {Data: []byte("go 1.26\n")}}, "no module line"},
		{"broken source", fstest.MapFS{"go.mod": module, "a/a.go": {Data: []byte("pakage a\n")}}, "a/a.go:1"},
		{"negated ignore", fstest.MapFS{"go.mod": module, ".gitignore": {Data: []byte("a\n!b\n")}}, ".gitignore:2"},
		{"nested ignore", fstest.MapFS{"go.mod": module, ".gitignore": {Data: []byte("a/b\n")}}, ".gitignore:1"},
		{"deep ignore", fstest.MapFS{"go.mod": module, ".gitignore": {Data: []byte("**\n")}}, ".gitignore:1"},
		{"bad glob", fstest.MapFS{"go.mod": module, ".gitignore": {Data: []byte("[a\n")}}, ".gitignore:1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(c.fsys)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("load: error %v, want one that names %q", err, c.want)
			}
		})
	}
}

func TestIgnoreFollowsGit(t *testing.T) {
	ig, err := readIgnore(fstest.MapFS{".gitignore": {Data: []byte("/bin/\n.idea/\n*.prof\n")}})
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		path  string
		isDir bool
		want  bool
	}{
		{"bin", true, true},
		{"bin", false, false},
		{"a/bin", true, false},
		{".idea", true, true},
		{"a/.idea", true, true},
		{"cpu.prof", false, true},
		{"a/cpu.prof", false, true},
		{"a/prof", false, false},
	}
	for _, c := range cases {
		if got := ig.match(c.path, c.isDir); got != c.want {
			t.Errorf("match(%q, dir %t) = %t, want %t", c.path, c.isDir, got, c.want)
		}
	}
}

func TestFindingSaysWhereAndWhatToDo(t *testing.T) {
	got := finding{"a/a.go", 3, "a test sleeps", "drive the clock"}.String()
	if want := "a/a.go:3: a test sleeps: drive the clock"; got != want {
		t.Errorf("finding reads %q, want %q", got, want)
	}
}
