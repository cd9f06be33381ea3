package versus

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Only narrows a run. Empty: everything is measured.
type Only struct {
	names []string
	cells []string
}

var cellForm = regexp.MustCompile(`^[1-9][0-9]*x[1-9][0-9]*$`)

// ParseOnly reads a list of contenders and cells, such as "engine,pg-coalesced,1000x16".
func ParseOnly(text string) (Only, error) {
	var o Only
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		switch {
		case item == "":
		case cellForm.MatchString(item):
			o.cells = append(o.cells, item)
		case slices.Contains(names(), item):
			o.names = append(o.names, item)
		default:
			return Only{}, fmt.Errorf("%q is neither a cell such as 1x64 nor one of %s", item,
				strings.Join(names(), ", "))
		}
	}
	return o, nil
}

func names() []string {
	var out []string
	for _, c := range all() {
		out = append(out, c.name)
	}
	return out
}

func (o Only) contenders() []contender {
	return slices.DeleteFunc(all(), func(c contender) bool {
		return len(o.names) > 0 && !slices.Contains(o.names, c.name)
	})
}

func (o Only) cell(c Cell) bool { return len(o.cells) == 0 || slices.Contains(o.cells, c.String()) }

// extras are measured on the engine, when cells do not narrow the run.
func (o Only) extras() bool {
	return len(o.cells) == 0 && (len(o.names) == 0 || slices.Contains(o.names, engineName))
}
