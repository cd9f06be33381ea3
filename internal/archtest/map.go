package archtest

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// mapPath is the page that shows a newcomer the whole house.
const mapPath = "docs/map.md"

// mapIsTrue finds rooms that the map names and the house lacks, packages that the map does not name, and files that
// the text below it speaks of and that are not there.
func mapIsTrue(t *tree) []finding {
	text, found := t.pages[mapPath]
	if !found {
		return []finding{{mapPath, 1, "there is no map", "draw one: every package, in a block of its own"}}
	}
	rooms, out := readMap(text)
	dirs, _ := t.packages()
	for room, line := range rooms {
		if !slices.ContainsFunc(t.files, func(f file) bool { return strings.HasPrefix(f.path, room+"/") }) {
			out = append(out, finding{mapPath, line, "the map names " + room + ", which is not there",
				"take it off the map"})
		}
	}
	for _, dir := range dirs {
		if _, named := rooms[dir]; !named {
			out = append(out, finding{mapPath, 1, "the map does not name " + dir, "say in a few words what it is for"})
		}
	}
	return append(out, missingFiles(t, text)...)
}

// readMap reads the first block of the page: folders by their indentation, several on a line, and those that a line
// names later on inside its first one.
func readMap(text string) (rooms map[string]int, out []finding) {
	rooms = map[string]int{}
	var above []string // by depth
	inside := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "```") {
			if inside {
				return rooms, out
			}
			inside = true
			continue
		}
		if !inside || strings.TrimSpace(line) == "" {
			continue
		}
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		if depth > len(above) {
			out = append(out, finding{mapPath, i + 1, "a line is indented by more than one step",
				"indent by two spaces"})
			continue
		}
		first := ""
		for j, word := range strings.Fields(line) {
			name, isFolder := strings.CutSuffix(strings.TrimRight(word, ",;:."), "/")
			if !isFolder || !folderName.MatchString(name) {
				continue
			}
			switch {
			case first != "" && (j == 0 || !isList(line, word)):
				rooms[path.Join(first, name)] = i + 1
			default:
				full := path.Join(append(slices.Clone(above[:depth]), name)...)
				rooms[full] = i + 1
				if first == "" {
					first = full
				}
			}
		}
		if first != "" {
			above = append(above[:depth], strings.TrimPrefix(strings.TrimPrefix(first, path.Join(above[:depth]...)),
				"/"))
		}
	}
	return rooms, out
}

// isList reports whether all words before this one are folders too: then it stands beside them, not inside.
func isList(line, word string) bool {
	before, _, _ := strings.Cut(line, word)
	for _, w := range strings.Fields(before) {
		if !strings.HasSuffix(w, "/") {
			return false
		}
	}
	return true
}

var (
	folderName = regexp.MustCompile(`^[a-z0-9]+([-/][a-z0-9]+)*$`)
	goFileName = regexp.MustCompile("`([a-z0-9_/]+\\.go)`")
)

// missingFiles finds names of Go files in the text that end no path of the tree.
func missingFiles(t *tree, text string) (out []finding) {
	for i, line := range strings.Split(text, "\n") {
		for _, m := range goFileName.FindAllStringSubmatch(line, -1) {
			there := slices.ContainsFunc(t.files, func(f file) bool { return strings.HasSuffix("/"+f.path, "/"+m[1]) })
			if !there {
				out = append(out, finding{mapPath, i + 1, fmt.Sprintf("%s is not there", m[1]),
					"name the file that it is now"})
			}
		}
	}
	return out
}

// kindTypes are the types of entities. Stores keep entities without knowing them.
var kindTypes = regexp.MustCompile(`\b(tenant\.(Tenant|APIKey)|meter\.Meter|usage\.(Adjustment|Period)|` +
	`quota\.(Plan|Assignment|Alert)|ledger\.(Archive|Base|Floor)|request\.Stored)\b`)

// maxKindFiles is how many files of the stores may know one, where decisions need it decoded.
const maxKindFiles = 6

// storesKnowNoKind finds files of stores that name a kind of entity, when there are too many: a new kind would have to
// be added to them.
func storesKnowNoKind(t *tree) (out []finding) {
	for _, f := range t.production() {
		if !strings.HasPrefix(f.dir, "internal/store") || strings.HasPrefix(f.dir, "internal/store/storetest") {
			continue
		}
		if at := kindTypes.FindStringIndex(f.text); at != nil {
			line := strings.Count(f.text[:at[0]], "\n") + 1
			out = append(out, finding{f.path, line, "a store names the type " + f.text[at[0]:at[1]],
				fmt.Sprintf("go through entities, or through resident.Set; %d files may know kinds", maxKindFiles)})
		}
	}
	if len(out) <= maxKindFiles {
		return nil
	}
	return out
}
