package versus

import "github.com/spf13/cobra"

func newWindowsCommand(dir, file *string) *cobra.Command {
	var o WindowsOptions
	c := &cobra.Command{
		Use:   "windows",
		Short: "Measure questions about a span of time, and what answering them fast takes from ingest",
		Long: `Fills a store with one tenant's month and asks for it by hour, grouped by customer, beside the same
query in a private PostgreSQL over the same rows and in DuckDB over the store's own files; asks for single customers;
and measures ingest while the sorted files are made and without them.`,
		Example: `  tallystick-versus windows --rows 100000000 --no-postgres`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Dir, o.Progress = *dir, c.ErrOrStderr()
			r, err := RunWindows(c.Context(), o)
			if err != nil {
				return err
			}
			r.Print(c.OutOrStdout())
			return writeJSON(*file, r)
		},
	}
	f := c.Flags()
	f.Int64Var(&o.Rows, "rows", defaultWindowRows,
		"of the tenant; each takes some 100 bytes of disk, and 200 in PostgreSQL")
	f.IntVar(&o.Customers, "customers", defaultWindowBuyers, "that the rows are of")
	f.IntVar(&o.Lookups, "lookups", defaultLookups, "questions for one customer")
	f.IntVar(&o.Repetitions, "repetitions", defaultWindowRuns, "of each query, interleaved")
	f.Int64Var(&o.Ingest, "ingest", defaultWindowIngest, "rows of each turn in which ingest is measured")
	f.StringVar(&o.DuckDB, "duckdb", "", "command that runs queries in DuckDB, as make bench-windows builds it")
	f.BoolVar(&o.NoPostgres, "no-postgres", false, "leave PostgreSQL out")
	return c
}
