package versus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/heap"
)

// Main runs the command line and returns the exit code: 0 measured, whatever the figures; 1 something failed; 2 wrong
// use.
func Main(args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	heap.Tune()
	began := false
	c := newCommand()
	c.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	c.SetArgs(args)
	c.SetOut(out)
	c.SetErr(errOut)
	err := c.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(errOut, "tallystick-versus: %v\n", err)
	var wrong *usageError
	if !began || errors.As(err, &wrong) {
		return 2
	}
	return 1
}

type usageError struct{ error }

func newCommand() *cobra.Command {
	var o Options
	var only, file string
	c := &cobra.Command{
		Use:   "tallystick-versus",
		Short: "Measure the engine beside PostgreSQL and bare HTTP servers, in one run",
		Long: `Sends the same generated events, 5 % of them duplicates, to hand-written PostgreSQL handlers, to the
engine in process and over HTTP, and to HTTP servers without a store; checks what each counted;
and prints medians, ratios and the design's targets. PostgreSQL is a private one with default durability.`,
		Example: `  tallystick-versus --json versus.json
  tallystick-versus --only engine,pg-coalesced,1000x16 --repetitions 5
  tallystick-versus growth --keys 100000000
  tallystick-versus customers --customers 100000,2000000
  tallystick-versus fairness
  tallystick-versus slow
  tallystick-versus sinks
  tallystick-versus pg-growth --rows 1000000,20000000`,
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.Only, err = ParseOnly(only); err != nil {
				return &usageError{err}
			}
			o.Progress = c.ErrOrStderr()
			r, err := Run(c.Context(), o)
			if err != nil {
				return err
			}
			r.Print(c.OutOrStdout())
			return writeJSON(file, r)
		},
	}
	f := c.Flags()
	f.IntSliceVar(&o.Batches, "batches", []int{1, 100, 1000}, "events of a request")
	f.IntSliceVar(&o.Submitters, "submitters", []int{1, 16, 64}, "requests under way at once")
	f.IntVar(&o.Repetitions, "repetitions", defaultRepetitions, "interleaved repetitions")
	f.DurationVar(&o.CellTime, "time", defaultCellTime, "time of one measurement")
	f.IntVar(&o.Customers, "customers", defaultCustomers, "customers, over all tenants")
	f.Uint64Var(&o.Seed, "seed", 1, "of the generated events")
	f.StringVar(&only, "only", "", "contenders and cells to measure, such as engine,pg-set,1x64")
	c.PersistentFlags().StringVar(&o.Dir, "dir", "",
		"where stores live while they are measured (default: the temporary folder)")
	c.PersistentFlags().StringVar(&file, "json", "", "also write the figures to this file")
	c.AddCommand(newGrowthCommand(&o.Dir, &file), newGrowthChildCommand(), newFairnessCommand(&o.Dir, &file),
		newCallerCommand(), newPgGrowthCommand(&file), newWindowsCommand(&o.Dir, &file), newHoursCommand(&o.Dir, &file),
		newSlowCommandLine(&o.Dir, &file), newSlowServerCommand(), newSlowCommand(),
		newCustomersCommand(&o.Dir, &file), newCustomersChildCommand(), newSinksCommand(&o.Dir, &file),
		newSinksServerCommand())
	return c
}

func writeJSON(path string, result any) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}
