package app

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
)

// root is the command line of one run.
type root struct {
	command *cobra.Command
	began   bool // a command got past its flags and arguments
}

func newRootCommand() *root {
	r := &root{}
	r.command = &cobra.Command{
		Use:   "tallystick",
		Short: "A ledger for usage billing: every fact counted once",
		Long: `Tallystick takes billable facts that arrive late, twice and out of order, and turns
them into one ledger, one count and one bill that both sides can check.`,
		Example: `  tallystick demo                      see it work, in a temporary directory
  tallystick serve --data ./data       serve a ledger
  tallystick verify --data ./data      prove that counters and ledger agree`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              cobra.NoArgs,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	r.command.AddCommand(
		newServeCommand(), newDemoCommand(), newBenchCommand(), newVerifyCommand(), newRebuildCommand(),
		newMoveCommand(),
		newExportCommand(), newReplayCommand(), newTailCommand(), newRetainCommand(), newEpochCommand(),
		newMigrateCommand(),
		newConfigCommand(), newVersionCommand(),
	)
	r.watch(r.command)
	return r
}

// watch notes when a command runs. What fails before, in flags, their combinations or arguments, is wrong use.
func (r *root) watch(c *cobra.Command) {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		r.began = true
		return run(c, args)
	}
	for _, child := range c.Commands() {
		r.watch(child)
	}
}

// printJSON writes one result as a program reads it.
func printJSON(w io.Writer, result any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(result)
}
