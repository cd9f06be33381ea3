package archtest

import (
	"os"
	"sync"
	"testing"
)

// The tests of this file hold the repository itself to the rules; those of rules_test.go show that each rule can fail.

var repository = sync.OnceValues(func() (*tree, error) { return load(os.DirFS("../..")) })

func holds(t *testing.T, r rule) {
	t.Helper()
	tree, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r(tree) {
		t.Error(f)
	}
}

func TestEveryPackageHasARoom(t *testing.T)     { holds(t, everyPackageHasARoom) }
func TestImportsGoDown(t *testing.T)            { holds(t, importsGoDown) }
func TestCoreIsPure(t *testing.T)               { holds(t, coreIsPure) }
func TestCoreHasNoFloats(t *testing.T)          { holds(t, coreHasNoFloats) }
func TestEveryPackageIsDocumented(t *testing.T) { holds(t, everyPackageIsDocumented) }
func TestFilesAreShort(t *testing.T)            { holds(t, filesAreShort) }
func TestLinesEndInTime(t *testing.T)           { holds(t, linesEndInTime) }
func TestFilesAreSmall(t *testing.T)            { holds(t, filesAreSmall) }
func TestNothingIsPutOff(t *testing.T)          { holds(t, nothingIsPutOff) }
func TestMapIsTrue(t *testing.T)                { holds(t, mapIsTrue) }
func TestStoresKnowNoKind(t *testing.T)         { holds(t, storesKnowNoKind) }
func TestTestsNeverSleep(t *testing.T)          { holds(t, testsNeverSleep) }
func TestTestsNeverSkip(t *testing.T)           { holds(t, testsNeverSkip) }
func TestPackagesAreNamedForWhatTheyProvide(t *testing.T) {
	holds(t, packagesAreNamedForWhatTheyProvide)
}

// A walk from the wrong folder would find nothing wrong anywhere.
func TestTheWalkSeesThisRepository(t *testing.T) {
	tree, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, f := range tree.gos {
		seen[f.path] = true
	}
	for _, f := range tree.files {
		seen[f.path] = true
	}
	for _, want := range []string{"go.mod", "Makefile", ".ci/run", "internal/archtest/doc.go",
		"internal/archtest/house_test.go"} {
		if !seen[want] {
			t.Errorf("the walk missed %s", want)
		}
	}
}
