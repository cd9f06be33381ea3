package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"sort"
	"strconv"
	"strings"
)

// A finding is one breach of a rule: where it is, what is wrong and what to do about it.
type finding struct {
	file string
	line int
	what string
	do   string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.file, f.line, f.what, f.do)
}

// A rule reports every breach that it finds in the tree.
type rule func(*tree) []finding

// A tree is the source tree as git would track it: everything but .git and what .gitignore names.
type tree struct {
	module string
	files  []file
	gos    []goFile
	pages  map[string]string // documentation, by path
}

type file struct {
	path string
	size int64
}

// A goFile is a parsed Go file that the go command would build: not in testdata, nor in a folder that starts with a
// dot or an underscore.
type goFile struct {
	path string
	dir  string
	test bool
	text string
	fset *token.FileSet
	ast  *ast.File
}

// load reads and parses the tree. A file that vanishes while it is being read is left out: other tests run at the same
// time and may leave failure files behind.
func load(fsys fs.FS) (*tree, error) {
	module, err := modulePath(fsys)
	if err != nil {
		return nil, err
	}
	ignored, err := readIgnore(fsys)
	if err != nil {
		return nil, err
	}
	t := &tree{module: module, pages: map[string]string{}}
	err = fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && p != "." {
			return nil
		}
		if err != nil {
			return err
		}
		if p == "." {
			return nil
		}
		if p == ".git" || ignored.match(p, d.IsDir()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return t.add(fsys, p, d)
	})
	if err != nil {
		return nil, fmt.Errorf("walk the source tree: %w", err)
	}
	return t, nil
}

func (t *tree) add(fsys fs.FS, p string, d fs.DirEntry) error {
	info, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	t.files = append(t.files, file{path: p, size: info.Size()})
	page := strings.HasSuffix(p, ".md")
	if !page && (!strings.HasSuffix(p, ".go") || !built(path.Dir(p))) {
		return nil
	}
	text, err := fs.ReadFile(fsys, p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if page {
		t.pages[p] = string(text)
		return nil
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, p, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.gos = append(t.gos, goFile{
		path: p,
		dir:  path.Dir(p),
		test: strings.HasSuffix(p, "_test.go"),
		text: string(text),
		fset: fset,
		ast:  parsed,
	})
	return nil
}

// built reports whether the go command looks into dir.
func built(dir string) bool {
	if dir == "." {
		return true
	}
	for _, name := range strings.Split(dir, "/") {
		if name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
			return false
		}
	}
	return true
}

func modulePath(fsys fs.FS) (string, error) {
	text, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return "", fmt.Errorf("read the module path: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", errors.New("read the module path: go.mod has no module line")
}

// production returns the Go files that are not tests.
func (t *tree) production() []goFile {
	var out []goFile
	for _, f := range t.gos {
		if !f.test {
			out = append(out, f)
		}
	}
	return out
}

// packages returns the Go files by folder, and the folders in order.
func (t *tree) packages() (dirs []string, byDir map[string][]goFile) {
	byDir = make(map[string][]goFile)
	for _, f := range t.gos {
		if byDir[f.dir] == nil {
			dirs = append(dirs, f.dir)
		}
		byDir[f.dir] = append(byDir[f.dir], f)
	}
	sort.Strings(dirs)
	return dirs, byDir
}

func (f goFile) finding(pos token.Pos, what, do string) finding {
	return finding{file: f.path, line: f.fset.Position(pos).Line, what: what, do: do}
}

// imported is one import of a file; name is what the file calls it.
type imported struct {
	path string
	name string
	pos  token.Pos
}

func (f goFile) imports() []imported {
	out := make([]imported, 0, len(f.ast.Imports))
	for _, spec := range f.ast.Imports {
		// The parser accepts nothing but a valid string literal here.
		p, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		out = append(out, imported{path: p, name: name, pos: spec.Pos()})
	}
	return out
}

// nameOf returns what the file calls the package at importPath, or "" when it does not import it.
func (f goFile) nameOf(importPath string) string {
	for _, i := range f.imports() {
		if i.path == importPath {
			return i.name
		}
	}
	return ""
}

// selects reports whether n is name.Sel for one of the given selectors, called or not: passing time.Now on as a value
// reads the clock just as well.
func selects(n ast.Node, name string, sels map[string]bool) (*ast.SelectorExpr, bool) {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok || name == "" {
		return nil, false
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok || x.Name != name || !sels[sel.Sel.Name] {
		return nil, false
	}
	return sel, true
}
