package app

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/heap"
	"github.com/tallystick/tallystick/internal/service/export"
)

// toStream as --out writes to standard output.
const toStream = "-"

func newExportCommand() *cobra.Command {
	var from place
	var o export.Options
	var out, format, kind, since, until, server string
	var asJSON bool
	c := &cobra.Command{
		Use:   "export",
		Short: "Write ledger rows as Parquet, CSV or NDJSON",
		Long: `Writes the rows that are committed when it begins. A folder takes them in parts, each whole before it
has its name: an export that broke off, or a ledger that has grown, is gone on with by running the same
command again. An embedded store must not be served meanwhile, unless its server is asked with --url;
a database may be.`,
		Example: `  tallystick export --data ./data --out ./export
  tallystick export --store postgres://tallystick@db.internal/ledger --tenant acme --format csv --out ./acme
  tallystick export --data ./data --tenant acme --meter api_calls --from 2026-10-01T00:00:00Z --format ndjson --out -
  TALLYSTICK_KEY=… tallystick export --url http://127.0.0.1:8080 --out ./export`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			o.Format, o.Kind = export.Format(format), export.Kind(kind)
			if err := checkExport(&o, out, asJSON); err != nil {
				return err
			}
			if o.Filter.From, err = momentFlag("from", since); err != nil {
				return err
			}
			if o.Filter.To, err = momentFlag("to", until); err != nil {
				return err
			}
			rows, done, err := sourceOf(c, &from, server)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, done()) }()
			if out == toStream {
				o.Stream = c.OutOrStdout()
			} else {
				o.Dir = out
			}
			return runExport(c, rows, o, asJSON)
		},
	}
	from.flags(c)
	urlFlag(c, &server)
	c.Flags().StringVar(&out, "out", "", "the `FOLDER` to fill, or - for standard output")
	c.Flags().StringVar(&format, "format", string(export.Parquet), "parquet, csv or ndjson")
	c.Flags().StringVar(&kind, "rows", string(export.Events),
		"events, entries of accounts, or changes: what the audit log shows")
	c.Flags().StringVar(&o.Filter.Tenant, "tenant", "", "only this tenant's rows; default: everybody's")
	c.Flags().StringVar(&o.Filter.Meter, "meter", "", "only events that fed this meter")
	c.Flags().StringVar(&o.Filter.Customer, "customer", "", "only this customer's events")
	c.Flags().StringVar(&since, "from", "", "only what happened at or after this `TIME`, RFC 3339 or a date")
	c.Flags().StringVar(&until, "to", "", "only what happened before this `TIME`, RFC 3339 or a date")
	c.Flags().IntVar(&o.PartRows, "part-rows", 1_000_000, "rows of a part, at most")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON, without progress")
	return c
}

func checkExport(o *export.Options, out string, asJSON bool) error {
	switch {
	case out == "":
		return wrongUse("name a folder with --out, or - for standard output")
	case out == toStream && asJSON:
		return wrongUse("--json prints the result where --out - writes the rows: leave one of them out")
	case !slices.Contains([]export.Format{export.Parquet, export.CSV, export.NDJSON}, o.Format):
		return wrongUse("--format is parquet, csv or ndjson, not %q", o.Format)
	case !slices.Contains([]export.Kind{export.Events, export.Entries, export.Changes}, o.Kind):
		return wrongUse("--rows is events, entries or changes, not %q", o.Kind)
	case o.Kind != export.Events && (o.Filter.Meter != "" || o.Filter.Customer != ""):
		return wrongUse("--meter and --customer choose among events: leave them out with --rows %s", o.Kind)
	case o.PartRows < 1:
		return wrongUse("--part-rows must be at least 1")
	}
	return nil
}

// momentFlag reads a time, nil when it is not given.
func momentFlag(name, text string) (*calendar.Micros, error) {
	if text == "" {
		return nil, nil
	}
	m, ok := calendar.ParseMoment(text)
	if !ok {
		return nil, wrongUse("--%s: %q is neither a time like 2026-11-15T02:10:00Z nor a date like 2026-11-15, which "+
			"is midnight in UTC", name, text)
	}
	return &m, nil
}

// sourceOf opens the store, or turns to the server.
func sourceOf(c *cobra.Command, from *place, address string) (s export.Source, done func() error, err error) {
	if address != "" {
		r, err := newRemote(address, "")
		return r, func() error { return nil }, err
	}
	opened, err := from.open(c)
	if err != nil {
		return nil, nil, err
	}
	return export.FromStore(opened), opened.Close, nil
}

func runExport(c *cobra.Command, s export.Source, o export.Options, asJSON bool) error {
	heap.Tune()
	bar := progressFor(c, asJSON)("exporting")
	o.Progress = bar.set
	report, err := export.Run(c.Context(), s, o)
	bar.end()
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	if asJSON {
		return printJSON(c.OutOrStdout(), report)
	}
	fmt.Fprintf(c.ErrOrStderr(), "ok: %s of %s exported\n", counted(report.Rows, "row"),
		counted(report.Tenants, "tenant"))
	return nil
}
