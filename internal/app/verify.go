package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/heap"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/postgres"
)

func newVerifyCommand() *cobra.Command {
	var data, url, server, tenantID string
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify",
		Short: "Prove that the ledger and everything derived from it agree",
		Long: `Reads every file of an embedded store that no server has open, or every row of a
database, checks every checksum and every key, recomputes every counter and the tree of
hashes from the ledger's rows, and lists what differs. Exit code 1 means that something
does, or could not be read. With --url a running server does it beside its other work: all of
it with the operator's key, one tenant's books with an admin key of the tenant.`,
		Example: `  tallystick verify --data ./data
  tallystick verify --store postgres://tallystick@db.internal/ledger
  tallystick verify --data ./data --json
  TALLYSTICK_KEY=… tallystick verify --url http://127.0.0.1:8080`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			heap.Tune()
			p := progressFor(c, asJSON)
			if server != "" {
				report, err := verifyRemote(c.Context(), server, tenantID, p)
				return showReport(c.OutOrStdout(), report, err, asJSON)
			}
			if tenantID != "" {
				return wrongUse("--tenant goes with --url: a store is verified whole")
			}
			if isDatabase(url) {
				report, err := verifyDatabase(c.Context(), url, p)
				return showReport(c.OutOrStdout(), report, err, asJSON)
			}
			if url != embedded {
				return wrongUse("--store is embedded, with --data, or postgres://…")
			}
			if err := mustHoldStore(data); err != nil {
				return err
			}
			report, err := verifyData(c.Context(), engine.Options{Dir: data, Fatal: exitOn(c.ErrOrStderr())}, p)
			return showReport(c.OutOrStdout(), report, err, asJSON)
		},
	}
	c.Flags().StringVar(&data, "data", "./data", "directory of the embedded store")
	c.Flags().StringVar(&url, "store", embedded, "where the ledger is kept: embedded, or postgres://…")
	urlFlag(c, &server)
	c.Flags().StringVar(&tenantID, "tenant", "", "with --url and the operator's key: only this tenant's books")
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON, without progress")
	return c
}

// verifyRemote has a running server do it.
func verifyRemote(ctx context.Context, address, tenantID string, bar func(string) *progressBar) (report verify.Report,
	err error) {
	r, err := newRemote(address, tenantID)
	if err != nil {
		return report, err
	}
	take, end := r.progress(bar)
	defer end()
	err = r.ask(ctx, http.MethodGet, "/v1/verification", nil,
		lines{"progress": take, "result": func(value []byte) error {
			var in reportJSON
			err := json.Unmarshal(value, &in)
			report = verify.Report{Tenants: in.Tenants, Operator: in.Operator, Rows: in.Rows, Counters: in.Counters,
				Lookups: in.Lookups, Found: in.Found}
			for _, d := range in.Differences {
				report.Differences = append(report.Differences, verify.Difference(d))
			}
			return err
		}})
	return report, err
}

// mustHoldStore refuses directories without a store, which opening would make one in.
func mustHoldStore(data string) error {
	if _, err := os.Stat(filepath.Join(data, "STORE")); err != nil {
		return wrongUse("there is no store in %s: name its directory with --data: %w", data, err)
	}
	return nil
}

// exitOn ends the process on a failure that the store must not go on after.
func exitOn(errOut io.Writer) func(error) {
	return func(err error) {
		fmt.Fprintf(errOut, "tallystick: %v\n", err)
		os.Exit(exitFailed)
	}
}

// progressFor makes the bars of a command; none with JSON.
func progressFor(c *cobra.Command, asJSON bool) func(label string) *progressBar {
	return func(label string) *progressBar {
		if asJSON {
			return &progressBar{}
		}
		return newProgressBar(c.ErrOrStderr(), label)
	}
}

// verifyData opens the store and examines it: the files as the engine knows them, then the books through the port.
func verifyData(ctx context.Context, o engine.Options, bar func(string) *progressBar) (report verify.Report,
	err error) {
	opening := bar("replaying")
	o.Progress = opening.bytes
	e, err := engine.Open(o)
	opening.end()
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	files := bar("reading files")
	err = e.Verify(ctx, files.bytes)
	files.end()
	if err != nil {
		return report, err
	}
	return recount(ctx, e, bar)
}

// verifyDatabase examines the books of a database; its files are the database's own business.
func verifyDatabase(ctx context.Context, url string, bar func(string) *progressBar) (report verify.Report, err error) {
	s, err := postgres.Open(ctx, postgres.Options{URL: url, SkipMigrations: true, NoRollups: true})
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return recount(ctx, s, bar)
}

// recount examines the books through the port.
func recount(ctx context.Context, s store.Store, bar func(string) *progressBar) (verify.Report, error) {
	books := bar("recounting")
	defer books.end()
	return verify.Run(ctx, s, verify.Options{Progress: books.set})
}

// The report as a program reads it.
type (
	reportJSON struct {
		OK bool `json:"ok"`
		// without the operator's own ledger, whose rows are among the rows
		Tenants     int              `json:"tenants"`
		Operator    bool             `json:"operator"`
		Rows        uint64           `json:"rows"`
		Counters    uint64           `json:"counters"`
		Lookups     uint64           `json:"lookups"`
		Found       uint64           `json:"differences_found"`
		Differences []differenceJSON `json:"differences"`
		Error       string           `json:"error,omitempty"`
	}
	differenceJSON struct {
		Tenant string `json:"tenant"`
		What   string `json:"what"`
		Want   string `json:"want"`
		Got    string `json:"got"`
	}
)

// showReport prints the report and turns differences into an error, so that the exit code says so too.
func showReport(out io.Writer, r verify.Report, failed error, asJSON bool) error {
	if asJSON {
		j := reportJSON{OK: failed == nil && r.OK(), Tenants: r.Tenants, Operator: r.Operator, Rows: r.Rows,
			Counters: r.Counters, Lookups: r.Lookups, Found: r.Found,
			Differences: []differenceJSON{}}
		for _, d := range r.Differences {
			j.Differences = append(j.Differences, differenceJSON(d))
		}
		if failed != nil {
			j.Error = failed.Error()
		}
		if err := printJSON(out, j); err != nil {
			return err
		}
	} else {
		for _, d := range r.Differences {
			fmt.Fprintln(out, d)
		}
	}
	if failed != nil {
		return fmt.Errorf("verify could not be finished: %w", failed)
	}
	if !r.OK() {
		return fmt.Errorf("%s in %s of %s: keep a copy of the data directory; if all are in derived data, "+
			"`tallystick rebuild` makes it again from the journal",
			counted(r.Found, "difference"), counted(r.Rows, "row"), ledgersOf(&r))
	}
	if !asJSON {
		fmt.Fprintf(out, "ok: %s of %s, %s: every file, key, counter and tree agrees with the ledger\n",
			counted(r.Rows, "row"), ledgersOf(&r), counted(r.Counters, "counter"))
	}
	return nil
}

// counted is a number with its noun: 1 row, 2 rows.
func counted[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ledgersOf counts the ledgers that were examined. The operator's own, which records the making of tenants, is none of
// a tenant's.
func ledgersOf(r *verify.Report) string {
	text := counted(r.Tenants, "tenant")
	if r.Operator {
		text += " and of the operator's own ledger"
	}
	return text
}
