package app

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/pgtest"
)

// commands lists every command that does something, by its words after the program's name.
func commands(c *cobra.Command, words ...string) (out [][]string) {
	children := c.Commands()
	if len(children) == 0 {
		return [][]string{words}
	}
	for _, child := range children {
		out = append(out, commands(child, append(words[:len(words):len(words)], child.Name())...)...)
	}
	return out
}

// Every command, also one that is added later, has help with an example of itself, --json, and the exit codes.
func TestEveryCommandHasHelpJSONAndExitCodes(t *testing.T) {
	tree := newRootCommand().command
	all := commands(tree)
	if len(all) < 13 {
		t.Errorf("only %d commands were found", len(all))
	}
	for _, words := range all {
		name := strings.Join(words, " ")
		c, _, err := tree.Find(words)
		if err != nil {
			t.Fatal(err)
		}
		if c.Short == "" || !strings.Contains(c.Example, "tallystick "+name) {
			t.Errorf("%s: says what it is for as %q, with the example %q", name, c.Short, c.Example)
		}
		if f := c.Flags().Lookup("json"); f == nil || f.Value.Type() != "bool" {
			t.Errorf("%s has no --json", name)
		}
		out := run(t, exitOK, append(words, "--help")...)
		if !strings.Contains(out, "Examples:") || !strings.Contains(out, "--json") {
			t.Errorf("%s --help: %s", name, out)
		}
		out = run(t, exitUsage, append(words, "--no-such-flag")...)
		if !strings.Contains(out, "--no-such-flag") || !strings.Contains(out, "--help") {
			t.Errorf("%s with a wrong flag: %s", name, out)
		}
	}
}

func TestCommandsThatOnlyPrintDoSoAsJSON(t *testing.T) {
	url, err := pgtest.Private(t).Create("")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		words []string
		key   string
	}{{[]string{"config", "example"}, "listen"}, {[]string{"version"}, "version"}, {[]string{"migrate", "--store", url},
		"ok"}} {
		var got map[string]any
		if out := run(t, exitOK, append(c.words, "--json")...); json.Unmarshal([]byte(out), &got) != nil ||
			got[c.key] == nil {
			t.Errorf("%s: %s", c.words, out)
		}
	}
}
