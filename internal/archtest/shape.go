package archtest

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

// sentence is a few words and a period that ends them.
var sentence = regexp.MustCompile(`\S+\s+\S+\s+[^.]*\S\.(\s|$)`)

// everyPackageIsDocumented finds packages whose comment is missing, is no sentence, or stands in two files, where the
// two would be joined in an order that nobody chose.
func everyPackageIsDocumented(t *tree) []finding {
	var out []finding
	dirs, byDir := t.packages()
	for _, dir := range dirs {
		var documented []goFile
		for _, f := range byDir[dir] {
			if !f.test && f.ast.Doc.Text() != "" {
				documented = append(documented, f)
			}
		}
		if len(documented) == 0 {
			f := byDir[dir][0]
			out = append(out, f.finding(f.ast.Package,
				fmt.Sprintf("package %s has no package comment", f.ast.Name.Name),
				"say above the package clause of one file, not a test, what the package owns and what it never does"))
			continue
		}
		first := documented[0]
		if !sentence.MatchString(first.ast.Doc.Text()) {
			out = append(out, first.finding(first.ast.Doc.Pos(), "the package comment is not a sentence",
				"write at least one full sentence that ends with a period"))
		}
		for _, f := range documented[1:] {
			out = append(out, f.finding(f.ast.Doc.Pos(), fmt.Sprintf("the package comment is also in %s", first.path),
				"keep it in one file; put an empty line between any other comment and the package clause"))
		}
	}
	return out
}

const (
	// maxLines is where a file most likely holds a second idea.
	maxLines = 600
	// lengthWithin is how many lines may precede the reason for a longer file.
	lengthWithin = 10
)

var lengthReason = regexp.MustCompile(`^// Length: \S`)

// filesAreShort finds long files that do not say why they are.
func filesAreShort(t *tree) []finding {
	var out []finding
	for _, f := range t.production() {
		lines := strings.Split(strings.TrimSuffix(f.text, "\n"), "\n")
		if len(lines) <= maxLines || hasLengthReason(lines) {
			continue
		}
		out = append(out, finding{f.path, maxLines + 1,
			fmt.Sprintf("the file has %d lines, more than %d", len(lines), maxLines),
			"split off its second idea, or say in its first lines why not: // Length: <reason>"})
	}
	return out
}

func hasLengthReason(lines []string) bool {
	for _, line := range lines[:min(lengthWithin, len(lines))] {
		if lengthReason.MatchString(line) {
			return true
		}
	}
	return false
}

const (
	// maxColumns is where a line ends, with a tab as four.
	maxColumns = 120
	tabColumns = 4
)

// linesEndInTime finds lines, of code and of comments, that a reader has to scroll for.
func linesEndInTime(t *tree) []finding {
	var out []finding
	for _, f := range t.gos {
		for i, line := range strings.Split(f.text, "\n") {
			columns := utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
			if columns > maxColumns {
				out = append(out, finding{f.path, i + 1, fmt.Sprintf("the line has %d columns, more than %d", columns,
					maxColumns), "break it where its outermost list has a comma, or name a part of it"})
			}
		}
	}
	return out
}

// vague are package names that say nothing about what is inside, so everything ends up there.
var vague = map[string]bool{"util": true, "utils": true, "common": true, "models": true, "types": true, "helpers": true}

// packagesAreNamedForWhatTheyProvide finds vague names, of packages and of their folders.
func packagesAreNamedForWhatTheyProvide(t *tree) []finding {
	var out []finding
	for _, f := range t.gos {
		for _, name := range []string{strings.TrimSuffix(f.ast.Name.Name, "_test"), path.Base(f.dir)} {
			if vague[name] {
				out = append(out, f.finding(f.ast.Package, fmt.Sprintf("the package name %q says nothing", name),
					"name the package for what it provides"))
				break
			}
		}
	}
	return out
}

// maxFileBytes is far above any source file; what exceeds it is a binary, a dump or a generated corpus.
const maxFileBytes = 256 << 10

// filesAreSmall finds files of any type that a repository of source should not carry.
func filesAreSmall(t *tree) []finding {
	var out []finding
	for _, f := range t.files {
		if f.size > maxFileBytes {
			out = append(out, finding{f.path, 1,
				fmt.Sprintf("the file has %d bytes, more than %d", f.size, maxFileBytes),
				"generate it when it is needed, or add it to .gitignore"})
		}
	}
	return out
}

// unfinished are the marks of work put off. They are spelled in parts so that this file does not carry them.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)

// nothingIsPutOff finds such marks anywhere in a Go file, strings and identifiers included.
func nothingIsPutOff(t *tree) []finding {
	var out []finding
	for _, f := range t.gos {
		line := 0
		for text := range strings.Lines(f.text) {
			line++
			if mark := unfinished.FindString(text); mark != "" {
				out = append(out, finding{f.path, line, "the line carries " + mark,
					"do it now, or state the limit plainly as it is"})
			}
		}
	}
	return out
}
