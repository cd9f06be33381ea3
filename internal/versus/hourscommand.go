package versus

import "github.com/spf13/cobra"

func newHoursCommand(dir, file *string) *cobra.Command {
	var o HoursOptions
	c := &cobra.Command{
		Use:   "hours",
		Short: "Measure a month by hour over all customers, during and after ingest, on both stores",
		Long: `Fills the embedded store and the PostgreSQL store with one tenant's month and asks for it by hour: while
rows come in, right after the last one, and at rest. Measures ingest into PostgreSQL with and without adding up.`,
		Example: `  tallystick-versus hours --rows 50000000 --postgres-rows 0`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Dir, o.Progress = *dir, c.ErrOrStderr()
			r, err := RunHours(c.Context(), o)
			if err != nil {
				return err
			}
			r.Print(c.OutOrStdout())
			return writeJSON(*file, r)
		},
	}
	f := c.Flags()
	f.Int64Var(&o.Rows, "rows", defaultWindowRows, "in the embedded store; each takes some 100 bytes of disk")
	f.Int64Var(&o.PostgresRows, "postgres-rows", defaultWindowRows,
		"in the PostgreSQL store, some 500 bytes of disk each; 0 leaves it out")
	f.IntVar(&o.Customers, "customers", defaultWindowBuyers, "that the rows are of")
	f.IntVar(&o.Repetitions, "repetitions", defaultWindowRuns, "turns of ingest, and a tenth of the questions at rest")
	f.Int64Var(&o.Ingest, "ingest", defaultHourIngest, "rows of each turn in which ingest is measured")
	return c
}
