package archtest

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// ignore holds the patterns of .gitignore. It knows the few forms that this repository uses and refuses the others,
// so that it cannot quietly disagree with git about what is tracked.
type ignore []ignorePattern

type ignorePattern struct {
	glob     string
	rootOnly bool
	dirOnly  bool
}

func readIgnore(fsys fs.FS) (ignore, error) {
	text, err := fs.ReadFile(fsys, ".gitignore")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read .gitignore: %w", err)
	}
	var out ignore
	line := 0
	for raw := range strings.Lines(string(text)) {
		line++
		pattern := strings.TrimSpace(raw)
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		parsed, err := parseIgnore(pattern)
		if err != nil {
			return nil, fmt.Errorf(".gitignore:%d: %w", line, err)
		}
		out = append(out, parsed)
	}
	return out, nil
}

func parseIgnore(pattern string) (ignorePattern, error) {
	glob, rootOnly := strings.CutPrefix(pattern, "/")
	glob, dirOnly := strings.CutSuffix(glob, "/")
	if strings.HasPrefix(glob, "!") || strings.Contains(glob, "/") || strings.Contains(glob, "**") {
		return ignorePattern{}, fmt.Errorf("pattern %q is not understood by internal/archtest: use a name, a glob, "+
			"/name or name/", pattern)
	}
	if _, err := path.Match(glob, ""); err != nil {
		return ignorePattern{}, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	return ignorePattern{glob: glob, rootOnly: rootOnly, dirOnly: dirOnly}, nil
}

// match reports whether p itself is ignored; the walk never enters an ignored folder, so its contents need no check.
func (ig ignore) match(p string, isDir bool) bool {
	for _, pattern := range ig {
		if pattern.dirOnly && !isDir {
			continue
		}
		if pattern.rootOnly && strings.Contains(p, "/") {
			continue
		}
		if ok, _ := path.Match(pattern.glob, path.Base(p)); ok {
			return true
		}
	}
	return false
}
