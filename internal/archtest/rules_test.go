package archtest

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// sources is a small tree: path to content.
type sources map[string]string

// importing is a file of the given package that imports the given paths; the first import is on line 2.
func importing(pkg string, paths ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n", pkg)
	for _, p := range paths {
		fmt.Fprintf(&b, "import %q\n", p)
	}
	return b.String()
}

func (s sources) load(t *testing.T) *tree {
	t.Helper()
	fsys := fstest.MapFS{"go.mod": {Data: []byte("module m.test/m\n")}}
	for p, text := range s {
		fsys[p] = &fstest.MapFile{Data: []byte(text)}
	}
	tree, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// expect runs a rule over a tree and compares where it finds breaches, as file:line.
func expect(t *testing.T, r rule, s sources, want ...string) {
	t.Helper()
	var got []string
	for _, f := range r(s.load(t)) {
		if f.what == "" || f.do == "" {
			t.Errorf("%s does not say what is wrong and what to do", f)
		}
		got = append(got, fmt.Sprintf("%s:%d", f.file, f.line))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestRuleEveryPackageHasARoom(t *testing.T) {
	expect(t, everyPackageHasARoom, sources{
		"cmd/x/main.go":                "package main\n",
		"client/client.go":             "package client\n",
		"internal/core/a/a.go":         "package a\n",
		"internal/misc/misc.go":        "\npackage misc\n",
		"internal/corelike/c.go":       "package corelike\n",
		"root.go":                      "package root\n",
		"docs/testdata/x.go":           "package x\n",
		"internal/simtest/sim_test.go": "package simtest\n",
	}, "root.go:1", "internal/corelike/c.go:1", "internal/misc/misc.go:2")
}

func TestRuleImportsGoDown(t *testing.T) {
	const m = "m.test/m/"
	cases := []struct {
		name    string
		dir     string
		imports string
		allowed bool
	}{
		{"cmd to app", "cmd/x", m + "internal/app", true},
		{"cmd to a store", "cmd/x", m + "internal/store/engine", false},
		{"app to everything below", "internal/app", m + "internal/edge/kafka", true},
		{"app to a store", "internal/app", m + "internal/store/postgres", true},
		{"app to cmd", "internal/app", m + "cmd/x", false},
		{"app to the client", "internal/app", m + "client", true},
		{"app to the simulation", "internal/app", m + "internal/simtest", false},
		{"app to the conformance suite", "internal/app", m + "internal/store/storetest", false},
		{"app to a module", "internal/app", "example.com/mod", true},
		{"edge to service", "internal/edge/httpapi", m + "internal/service/gate", true},
		{"edge to core", "internal/edge/httpapi", m + "internal/core/amount", true},
		{"edge to the console", "internal/edge/httpapi", m + "console", true},
		{"edge to its own folder", "internal/edge/httpapi", m + "internal/edge/httpapi/wire", true},
		{"edge to another edge", "internal/edge/httpapi", m + "internal/edge/kafka", false},
		{"edge to what HTTP edges share", "internal/edge/httpapi", m + "internal/edge/httpkit", true},
		{"edge to a part of it", "internal/edge/openmeter", m + "internal/edge/httpkit/render", true},
		{"what HTTP edges share to an edge", "internal/edge/httpkit", m + "internal/edge/httpapi", false},
		{"a part of it to an edge", "internal/edge/httpkit/render", m + "internal/edge/httpapi", false},
		{"a part of an edge to another edge", "internal/edge/lago/wire", m + "internal/edge/openmeter", false},
		{"edge to what only begins like the shared one", "internal/edge/lago", m + "internal/edge/httpkit2", false},
		{"edge to the way out", "internal/edge/kafka", m + "internal/edge/outbound", true},
		{"the way out to an edge", "internal/edge/outbound", m + "internal/edge/kafka", false},
		{"service to the way out", "internal/service/sinks", m + "internal/edge/outbound", false},
		{"service to what HTTP edges share", "internal/service/gate", m + "internal/edge/httpkit", false},
		{"edge to a package of all edges", "internal/edge/httpapi", m + "internal/edge", false},
		{"edge to app", "internal/edge/kafka", m + "internal/app", false},
		{"edge to a store", "internal/edge/kafka", m + "internal/store/naive", false},
		{"service to the port", "internal/service/gate", m + "internal/store", true},
		{"service to a service", "internal/service/gate", m + "internal/service/outbox", true},
		{"service to edge", "internal/service/gate", m + "internal/edge/nats", false},
		{"service to a part of a store", "internal/service/gate", m + "internal/store/engine/journal", false},
		{"service to the client", "internal/service/gate", m + "client", false},
		{"port to core", "internal/store", m + "internal/core/usage", true},
		{"port to a store", "internal/store", m + "internal/store/naive", false},
		{"port to service", "internal/store", m + "internal/service/gate", false},
		{"port to a module", "internal/store", "example.com/mod", false},
		{"store to port", "internal/store/engine", m + "internal/store", true},
		{"store to its parts", "internal/store/engine", m + "internal/store/engine/journal", true},
		{"store to a module", "internal/store/engine", "example.com/mod", true},
		{"store to another store", "internal/store/postgres", m + "internal/store/engine", false},
		{"part of a store to another store", "internal/store/engine/state", m + "internal/store/naive", false},
		{"store to the suite", "internal/store/naive", m + "internal/store/storetest", false},
		{"suite to the oracle", "internal/store/storetest", m + "internal/store/naive", true},
		{"suite to service", "internal/store/storetest", m + "internal/service/gate", false},
		{"core to core", "internal/core/meter", m + "internal/core/amount", true},
		{"core to the standard library", "internal/core/meter", "encoding/json", true},
		{"core to the port", "internal/core/meter", m + "internal/store", false},
		{"core to the client", "internal/core/meter", m + "client", false},
		{"core to a module", "internal/core/meter", "example.com/mod", false},
		{"client to the standard library", "client", "net/http", true},
		{"client to its own folder", "client", m + "client/retry", true},
		{"client to core", "client", m + "internal/core/amount", false},
		{"client to the contract", "client", m + "api", false},
		{"client to a module", "client", "example.com/mod", false},
		{"a part of a store to the ground", "internal/store/engine/keyindex", m + "internal/yield", true},
		{"service to the ground", "internal/service/fairness", m + "internal/yield", true},
		{"port to the ground", "internal/store", m + "internal/yield", false},
		{"core to the ground", "internal/core/meter", m + "internal/yield", false},
		{"ground to core", "internal/yield", m + "internal/core/amount", false},
		{"ground to a module", "internal/yield", "example.com/mod", false},
		{"simulation to everything", "internal/simtest", m + "internal/store/engine", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			production, test := c.dir+"/p.go", c.dir+"/p_test.go"
			var want []string
			if !c.allowed {
				want = []string{production + ":2"}
			}
			expect(t, importsGoDown, sources{
				production: importing("p", c.imports),
				test:       importing("p", c.imports),
			}, want...)
		})
	}
}

func TestRuleCoreIsPure(t *testing.T) {
	for _, p := range []string{"os", "os/exec", "net", "net/http", "net/http/httptest", "math/rand", "math/rand/v2",
		"crypto/rand", "log", "log/slog", "syscall"} {
		expect(t, coreIsPure, sources{"internal/core/a/a.go": importing("a", "strings", p)}, "internal/core/a/a.go:3")
	}
	for _, p := range []string{"net/url", "net/netip", "math/bits", "time", "sort"} {
		expect(t, coreIsPure, sources{"internal/core/a/a.go": importing("a", p)})
	}
	const clocked = `package a
import clk "time"
var now = clk.Now
var day = 24 * clk.Hour
func f(at clk.Time) {
	_ = clk.Since(at)
	go f(at)
}
`
	expect(t, coreIsPure, sources{
		"internal/core/a/a.go":      clocked,
		"internal/core/a/a_test.go": clocked,
		"internal/core/b/b.go":      "package b\nimport . \"time\"\n",
		"internal/service/s/s.go":   clocked,
	}, "internal/core/a/a.go:3", "internal/core/a/a.go:6", "internal/core/a/a.go:7", "internal/core/b/b.go:2")
}

func TestRuleCoreHasNoFloats(t *testing.T) {
	const floating = `package a
import "strconv"
// A float64 in a comment is no float.
type rate float64
func f(x float32) { _, _ = strconv.ParseFloat("1", 64) }
func g(r interface{ Float64() (int, bool) }) { r.Float64() }
`
	expect(t, coreHasNoFloats, sources{
		"internal/core/a/a.go":      floating,
		"internal/core/a/a_test.go": floating,
		"internal/app/a.go":         floating,
	}, "internal/core/a/a.go:4", "internal/core/a/a.go:5", "internal/core/a/a.go:5", "internal/core/a/a.go:6",
		"internal/core/a/a.go:6")
}

func TestRuleEveryPackageIsDocumented(t *testing.T) {
	expect(t, everyPackageIsDocumented, sources{
		"good/a.go":      "// Package good owns the good.\npackage good\n",
		"good/b.go":      "// Length: a note apart from the clause.\n\npackage good\n",
		"good/c.go":      "//go:build linux\n\n//go:generate true\npackage good\n",
		"good/a_test.go": "// What the tests of good share.\npackage good\n",
	})
	expect(t, everyPackageIsDocumented, sources{
		"none/a.go":       "package none\n",
		"short/a.go":      "// Package short.\npackage short\n",
		"endless/a.go":    "// Package endless never comes to an end\npackage endless\n",
		"twice/a.go":      "// Package twice says it here.\npackage twice\n",
		"twice/b.go":      "\n// Package twice says it here too.\npackage twice\n",
		"tests/a_test.go": "// Package tests is documented in a test.\npackage tests\n",
	}, "endless/a.go:1", "none/a.go:1", "short/a.go:1", "tests/a_test.go:2", "twice/b.go:2")
}

func TestRuleFilesAreShort(t *testing.T) {
	pad := func(head string, lines int) string {
		return head + strings.Repeat("\n", lines-strings.Count(head, "\n"))
	}
	const reason = "// Length: one table, better read in one piece.\n\npackage a\n"
	expect(t, filesAreShort, sources{
		"a/fits.go":      pad("package a\n", maxLines),
		"a/over.go":      pad("package a\n", maxLines+1),
		"a/over_test.go": pad("package a\n", maxLines+1),
		"a/reason.go":    pad(reason, maxLines+1),
		"a/empty.go":     pad("// Length:\n\npackage a\n", maxLines+1),
		"a/late.go":      pad(strings.Repeat("\n", lengthWithin)+reason, maxLines+1),
	}, "a/empty.go:601", "a/late.go:601", "a/over.go:601")
}

func TestRulePackagesAreNamedForWhatTheyProvide(t *testing.T) {
	expect(t, packagesAreNamedForWhatTheyProvide, sources{
		"internal/core/types/t.go":     "package money\n",
		"internal/core/a/a.go":         "package models\n",
		"internal/core/a/a_test.go":    "package helpers_test\n",
		"internal/util/u.go":           "package util\n",
		"internal/common/c.go":         "package common\n",
		"internal/core/commons/c.go":   "package commons\n",
		"internal/core/amount/util.go": "package amount\n",
	}, "internal/common/c.go:1", "internal/core/a/a.go:1", "internal/core/a/a_test.go:1", "internal/core/types/t.go:1",
		"internal/util/u.go:1")
}

func TestRuleFilesAreSmall(t *testing.T) {
	fits, over := strings.Repeat("x", maxFileBytes), strings.Repeat("x", maxFileBytes+1)
	expect(t, filesAreSmall, sources{
		".gitignore":       "# built\n/bin/\n*.prof\n",
		".git/pack":        over,
		"bin/tallystick":   over,
		"a/cpu.prof":       over,
		"a/bin/tool":       over,
		"a/testdata/x":     over,
		".hidden/x":        over,
		"a/testdata/small": fits,
	}, ".hidden/x:1", "a/bin/tool:1", "a/testdata/x:1")
}

func TestRuleNothingIsPutOff(t *testing.T) {
	marks := []string{"TO" + "DO", "FIX" + "ME", "XX" + "X"}
	for _, mark := range marks {
		expect(t, nothingIsPutOff, sources{
			"a/a.go":      "package a\n\n// " + mark + ": later.\n",
			"a/a_test.go": "package a\n\nconst c = \"" + mark + "\"\n",
			"a/b.go":      "package a\n\n// " + mark + "S and a" + mark + " are other words.\n",
			"a/notes.md":  mark,
		}, "a/a.go:3", "a/a_test.go:3")
	}
}

func TestRuleTestsNeverSleep(t *testing.T) {
	const sleeping = "package a\nimport \"time\"\nfunc f() {\n\ttime.Sleep(1)\n}\n"
	expect(t, testsNeverSleep, sources{
		"a/a_test.go":     sleeping,
		"a/a.go":          sleeping,
		"a/alias_test.go": "package a\nimport clk \"time\"\nvar pause = clk.Sleep\n",
		"a/suite.go":      "package a\nimport \"testing\"\nimport \"time\"\nfunc Run(t *testing.T) { time.Sleep(1) }\n",
		"a/fake_test.go":  "package a\nfunc f(clock fake) { clock.Sleep(1) }\n",
	}, "a/a_test.go:4", "a/alias_test.go:3", "a/suite.go:4")
}

func TestRuleTestsNeverSkip(t *testing.T) {
	expect(t, testsNeverSkip, sources{
		"a/bench_test.go": "package a\nimport \"testing\"\nfunc BenchmarkX(bench *testing.B) " +
			"{\n\tbench.SkipNow()\n}\n",
		"a/decode_test.go": "package a\nfunc f(dec decoder) { dec.Skip(3) }\n",
		"a/field_test.go":  "package a\nfunc f(run runner) { run.t.Skipf(\"no\") }\n",
		"a/rapid_test.go":  "package a\nimport \"pgregory.net/rapid\"\nfunc f(rt *rapid.T) { rt.Skip() }\n",
		"a/suite.go":       "package a\nimport \"testing\"\nfunc Run(s testing.TB) { s.Skip() }\n",
		"a/wire.go":        "package a\nfunc f(t tokens) { t.Skip() }\n",
		"a/x_test.go":      "package a\nimport \"testing\"\nfunc TestX(t *testing.T) {\n\tt.Skip(\"later\")\n}\n",
	}, "a/bench_test.go:4", "a/field_test.go:2", "a/rapid_test.go:3", "a/suite.go:3", "a/x_test.go:4")
}

func TestRuleMapIsTrue(t *testing.T) {
	const page = "# Map\n\n```\ncmd/x/   main\ninternal/\n  app/   commands; deep/ kills\n  core/\n    a/  b/   " +
		"rules\n```\n\n" +
		"See `a.go` and `core/b/b.go`, and `gone.go`.\n"
	expect(t, mapIsTrue, sources{
		"docs/map.md":                page,
		"cmd/x/main.go":              "package main\n",
		"internal/app/app.go":        "package app\n",
		"internal/app/deep/d.go":     "package deep\n",
		"internal/core/a/a.go":       "package a\n",
		"internal/core/b/b.go":       "package b\n",
		"internal/core/secret/s.go":  "package secret\n",
		"internal/core/a/testdata/x": "",
	}, "docs/map.md:1", "docs/map.md:11")
	expect(t, mapIsTrue, sources{"docs/map.md": "```\na/   is gone\n```\n"}, "docs/map.md:2")
	expect(t, mapIsTrue, sources{}, "docs/map.md:1")
}

func TestRuleStoresKnowNoKind(t *testing.T) {
	house := sources{
		"internal/store/storetest/s.go": "package storetest\n\nvar x tenant.Tenant\n",
		"internal/store/x/x_test.go":    "package x\n\nvar x tenant.Tenant\n",
		"internal/core/x/x.go":          "package x\n\nvar x tenant.Tenant\n",
		"internal/store/x/none.go":      "package x\n\nvar x usage.PeriodKind\n",
	}
	var want []string
	for i := range maxKindFiles {
		house[fmt.Sprintf("internal/store/x/%d.go", i)] = "package x\n\nvar x quota.Plan\n"
		want = append(want, fmt.Sprintf("internal/store/x/%d.go:3", i))
	}
	expect(t, storesKnowNoKind, house)
	house["internal/store/x/more.go"] = "package x\n\nvar x *request.Stored\n"
	expect(t, storesKnowNoKind, house, append(want, "internal/store/x/more.go:3")...)
}

func TestRuleLinesEndInTime(t *testing.T) {
	line := func(lead string, columns int) string { return lead + "// " + strings.Repeat("é", columns-3) + "\n" }
	expect(t, linesEndInTime, sources{
		"internal/edge/a/a.go": "package a\n" + line("", 120) + line("", 121) + line("\t", 116) +
			line("\t", 117),
		"internal/edge/a/a_test.go":     "package a\n\n" + line("", 130),
		"internal/service/b/c/b.go":     "package c\n" + line("", 121),
		"client/client.go":              line("", 121) + "package client\n",
		"internal/edge/a/testdata/x.go": "package x\n" + line("", 300),
	}, "client/client.go:1", "internal/edge/a/a.go:3", "internal/edge/a/a.go:5", "internal/edge/a/a_test.go:3",
		"internal/service/b/c/b.go:2")
}
