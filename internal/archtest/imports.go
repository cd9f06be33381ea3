package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// kind is the part of the house that a package belongs to. The floors are in order: imports go to a lower floor or
// stay on the same one.
type kind int

const (
	unknown kind = iota
	core
	store
	service
	edge
	app
	command
	// leaf packages are importable from the edge up and rest on the standard library alone.
	leaf
	// ground packages are importable from the stores up, but not from their port, and rest on the standard library
	// alone.
	ground
	// harness packages exist for tests: they may import anything, and no floor imports them.
	harness
)

// A room is a kind and, where siblings must not know one another, the name of the folder below it.
type room struct {
	kind kind
	name string
}

const (
	// port is the room of internal/store itself: the interfaces that every store implements.
	port = "port"
	// suite is the conformance suite, which may know every store.
	suite = "storetest"
	// kit is what all HTTP edges share. It knows none of them.
	kit = "httpkit"
	// exit is how edges reach hosts that tenants name. It knows no edge.
	exit = "outbound"
)

// shared are what several stores hold in memory: of a tenant, and of those who follow it. They know the port and no
// store.
var shared = []string{"resident", "following"}

// trunks maps the folders of the house to what lives there. A package below none of them has no rules, and therefore
// no place.
var trunks = []struct {
	dir  string
	kind kind
}{
	{"internal/core", core},
	{"internal/store", store},
	{"internal/service", service},
	{"internal/edge", edge},
	{"internal/app", app},
	// The generator and the comparison are programs of their own: they assemble a server to measure it, as the app
	// does.
	{"internal/load", app},
	{"internal/versus", app},
	{"internal/heap", app},
	{"internal/loopback", app},
	{"internal/yield", ground},
	{"cmd", command},
	{"client", leaf},
	{"api", leaf},
	{"console", leaf},
	{"internal/simtest", harness},
	{"internal/archtest", harness},
	{"internal/pgtest", harness},
	{"internal/redistest", harness},
	{"internal/kafkatest", harness},
	{"internal/natstest", harness},
	{"internal/thorough", harness},
}

func roomOf(dir string) room {
	for _, trunk := range trunks {
		rest, ok := strings.CutPrefix(dir+"/", trunk.dir+"/")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, "/")
		switch {
		case trunk.kind == leaf, trunk.kind == ground:
			name = trunk.dir
		case trunk.kind == store && name == "":
			name = port
		}
		return room{kind: trunk.kind, name: name}
	}
	return room{}
}

func (r room) isStoreImplementation() bool {
	return r.kind == store && r.name != port && r.name != suite && !slices.Contains(shared, r.name)
}

// everyPackageHasARoom finds packages outside the house: the import rules would say nothing about them.
func everyPackageHasARoom(t *tree) []finding {
	var out []finding
	dirs, byDir := t.packages()
	for _, dir := range dirs {
		if roomOf(dir).kind != unknown {
			continue
		}
		f := byDir[dir][0]
		out = append(out, f.finding(f.ast.Package, fmt.Sprintf("folder %q is on no floor", dir),
			"move the package to the floor it belongs to, or add its folder to trunks in internal/archtest/imports.go"))
	}
	return out
}

// importsGoDown finds imports against the direction cmd → app → edge → service → store → core, and the closer rules
// of single rooms.
func importsGoDown(t *tree) []finding {
	var out []finding
	for _, f := range t.production() {
		from := roomOf(f.dir)
		if from.kind == unknown || from.kind == harness {
			continue
		}
		for _, i := range f.imports() {
			if what, do := t.judge(from, i.path); what != "" {
				out = append(out, f.finding(i.pos, what, do))
			}
		}
	}
	return out
}

// judge returns what is wrong with an import of importPath from a room, and what to do; empty when it is allowed.
func (t *tree) judge(from room, importPath string) (what, do string) {
	dir, inside := t.inside(importPath)
	if !inside {
		return judgeOutside(from, importPath)
	}
	to := roomOf(dir)
	switch {
	case to.kind == unknown:
		// Reported by everyPackageHasARoom, where it can be fixed.
		return "", ""
	case to.kind == harness:
		return fmt.Sprintf("imports %s, which is for tests", dir), "move what is shared to the floor that owns it"
	case (from.kind == leaf || from.kind == ground) && to != from:
		return fmt.Sprintf("%s imports %s", from.name, dir), "rest on the standard library alone"
	case to == from:
		return "", ""
	case to.kind == ground && (from.kind == core || from == room{store, port}):
		return fmt.Sprintf("imports %s from below the stores", dir), "leave it to the floors that run"
	case to.kind == ground:
		return "", ""
	case to.kind == leaf && from.kind < edge:
		return fmt.Sprintf("imports %s from below the edge", dir), "pass in what is needed as values or an interface"
	case to.kind == leaf:
		return "", ""
	case to.kind > from.kind:
		return fmt.Sprintf("imports %s, a floor above", dir),
			"declare an interface here and let the floor above implement it"
	case from.kind == edge && to.kind == edge && to.name != kit && to.name != exit:
		return fmt.Sprintf("edge %s imports edge %s", from.name, to.name),
			"edges never know one another: move what is shared down, or what all HTTP edges need to httpkit"
	case to.kind == store:
		return judgeStore(from, to, dir)
	}
	return "", ""
}

func judgeStore(from, to room, dir string) (what, do string) {
	switch {
	case from.kind == store && from.name == port && to != from:
		return fmt.Sprintf("the store port imports %s", dir), "import the core and the standard library only"
	case from.kind == store && from.name == suite:
		return "", ""
	case from.kind == store && slices.Contains(shared, from.name) && to.isStoreImplementation():
		return fmt.Sprintf("%s imports store %s", dir, to.name), "what stores share knows none of them"
	case to.name == suite:
		return fmt.Sprintf("imports %s, the conformance suite", dir), "import it from tests only"
	case !to.isStoreImplementation() || from == to || from.kind == app:
		return "", ""
	case from.kind == store:
		return fmt.Sprintf("store %s imports store %s", from.name, to.name),
			"stores never know one another: move what is shared to the core or the port"
	}
	return fmt.Sprintf("imports the store implementation %s", dir),
		"take the port of internal/store; only internal/app chooses an implementation"
}

func judgeOutside(from room, importPath string) (what, do string) {
	if standard(importPath) {
		return "", ""
	}
	const advice = "use the standard library, or move the code that needs the module to another floor"
	switch {
	case from.kind == core:
		return fmt.Sprintf("the core imports %s", importPath), advice
	case from.kind == leaf, from.kind == ground:
		return fmt.Sprintf("%s imports %s", from.name, importPath), advice
	case from.kind == store && from.name == port:
		return fmt.Sprintf("the store port imports %s", importPath), advice
	}
	return "", ""
}

// inside returns the folder of a package of this module.
func (t *tree) inside(importPath string) (dir string, ok bool) {
	if importPath == t.module {
		return ".", true
	}
	return strings.CutPrefix(importPath, t.module+"/")
}

// standard reports whether the path is one of the standard library: its first element has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
