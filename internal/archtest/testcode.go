package archtest

import (
	"fmt"
	"go/ast"
)

var (
	sleeps = map[string]bool{"Sleep": true}
	skips  = map[string]bool{"Skip": true, "Skipf": true, "SkipNow": true}
)

// testsNeverSleep finds sleeps in tests: too short on a slow machine, too long on every other.
func testsNeverSleep(t *tree) []finding {
	var out []finding
	for _, f := range t.testCode() {
		timeName := f.nameOf("time")
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if sel, ok := selects(n, timeName, sleeps); ok {
				out = append(out, f.finding(sel.Pos(), "a test sleeps", "wait for a condition or drive the clock"))
			}
			return true
		})
	}
	return out
}

// testsNeverSkip finds skipped tests: a guarantee that is not checked everywhere is checked nowhere that matters.
func testsNeverSkip(t *tree) []finding {
	var out []finding
	for _, f := range t.testCode() {
		handles := f.testHandles()
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !skips[sel.Sel.Name] || !handles[lastName(sel.X)] {
				return true
			}
			out = append(out, f.finding(sel.Pos(), fmt.Sprintf("a test calls %s", sel.Sel.Name),
				"make the test run everywhere, fail when what it needs is missing, or remove it"))
			return true
		})
	}
	return out
}

// testCode returns the tests and the files that help them, which import testing too.
func (t *tree) testCode() []goFile {
	var out []goFile
	for _, f := range t.gos {
		if f.test || f.nameOf("testing") != "" {
			out = append(out, f)
		}
	}
	return out
}

// handles of a test in packages testing and rapid.
var handleTypes = map[string]bool{"T": true, "B": true, "F": true, "TB": true}

// testHandles returns the names that a file gives to its test handles, in parameters and fields. Other types have a
// method Skip too, decoders above all, so the method's name alone proves nothing.
func (f goFile) testHandles() map[string]bool {
	handles := map[string]bool{"t": true, "tb": true}
	testingName, rapidName := f.nameOf("testing"), f.nameOf("pgregory.net/rapid")
	ast.Inspect(f.ast, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok {
			return true
		}
		typ := field.Type
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		_, isTesting := selects(typ, testingName, handleTypes)
		_, isRapid := selects(typ, rapidName, handleTypes)
		if !isTesting && !isRapid {
			return true
		}
		for _, name := range field.Names {
			handles[name.Name] = true
		}
		return true
	})
	return handles
}

// lastName returns the name closest to the method: t of both t.Skip and run.t.Skip.
func lastName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}
