package archtest

import (
	"fmt"
	"go/ast"
	"strings"
)

// impure lists the packages, with all below them, that reach outside the program. net/url and net/netip are not among
// them: they only parse.
var impure = []string{"os", "net/http", "math/rand", "crypto/rand", "log", "syscall"}

// clock lists what package time offers to read the clock or to wait for it.
var clock = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true,
	"After": true, "AfterFunc": true, "Tick": true, "NewTimer": true, "NewTicker": true,
}

// coreIsPure finds I/O, clocks, chance, logging and goroutines in the core. The same facts must give the same bill
// wherever and whenever they are folded.
func coreIsPure(t *tree) []finding {
	var out []finding
	for _, f := range t.coreFiles() {
		for _, i := range f.imports() {
			if isImpure(i.path) {
				out = append(out, f.finding(i.pos, "the core imports "+i.path, "take what is needed as a parameter"))
			}
			if i.path == "time" && i.name == "." {
				out = append(out, f.finding(i.pos, "the core imports time into its own scope", "import it by its name"))
			}
		}
		timeName := f.nameOf("time")
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if sel, ok := selects(n, timeName, clock); ok {
				out = append(out, f.finding(sel.Pos(), fmt.Sprintf("the core uses time.%s", sel.Sel.Name),
					"take the time as a parameter"))
			}
			if g, ok := n.(*ast.GoStmt); ok {
				out = append(out, f.finding(g.Pos(), "the core starts a goroutine", "leave concurrency to the caller"))
			}
			return true
		})
	}
	return out
}

func isImpure(importPath string) bool {
	if importPath == "net" {
		return true
	}
	for _, p := range impure {
		if importPath == p || strings.HasPrefix(importPath, p+"/") {
			return true
		}
	}
	return false
}

// floats are the names through which a binary floating-point number gets into a program, conversions included.
var floats = map[string]bool{
	"float32": true, "float64": true,
	"ParseFloat": true, "Float32": true, "Float64": true,
}

// coreHasNoFloats finds floating point in the core: amounts are exact, and a tenth has no exact float.
func coreHasNoFloats(t *tree) []finding {
	var out []finding
	for _, f := range t.coreFiles() {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && floats[id.Name] {
				out = append(out, f.finding(id.Pos(), "the core uses "+id.Name,
					"use internal/core/amount, which is exact"))
			}
			return true
		})
	}
	return out
}

func (t *tree) coreFiles() []goFile {
	var out []goFile
	for _, f := range t.production() {
		if roomOf(f.dir).kind == core {
			out = append(out, f)
		}
	}
	return out
}
