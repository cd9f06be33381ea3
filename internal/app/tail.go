package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/service/gate"
)

func newTailCommand() *cobra.Command {
	var server, tenantID string
	var filter client.StreamFilter
	var count uint64
	var asJSON bool
	c := &cobra.Command{
		Use:   "tail",
		Short: "Print the rows of a ledger as they are committed",
		Long: `Follows a ledger through a running server and prints each row as it is committed, a line a row. It
connects again by itself, also over restarts of the server, and leaves no row out. SIGINT ends it.

A key with the scope read sees events and entries; changes need the scope audit too.`,
		Example: `  TALLYSTICK_KEY=… tallystick tail --url http://127.0.0.1:8080
  TALLYSTICK_KEY=… tallystick tail --url http://127.0.0.1:8080 --meter api_calls --customer cus_42
  TALLYSTICK_KEY=… tallystick tail --url http://127.0.0.1:8080 --from-seq 1 --rows event,change --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkTail(c, server, &filter); err != nil {
				return err
			}
			r, err := newRemote(server, tenantID)
			if err != nil {
				return err
			}
			line := tailLine
			if asJSON {
				line = func(b []byte, row *client.StreamedRow) ([]byte, error) { return append(b, row.Data...), nil }
			}
			return r.tail(c.Context(), filter, count, c.OutOrStdout(), line)
		},
	}
	c.Flags().StringVar(&server, "url", "",
		"the server, `http://host:port`; a key with the scope read is in "+keyVariable)
	c.Flags().StringVar(&tenantID, "tenant", "", "whose ledger, with the operator's key")
	c.Flags().Uint64Var(&filter.FromSeq, "from-seq", 0, "the row to begin with; default: rows from now on")
	c.Flags().StringSliceVar(&filter.Rows, "rows", nil,
		"`KINDS` of rows: event, entry, change; default: all that the key may read, events alone with a filter")
	c.Flags().StringVar(&filter.Meter, "meter", "", "of the events only those that fed this meter")
	c.Flags().StringVar(&filter.Customer, "customer", "", "of the events only this customer's")
	c.Flags().Uint64Var(&count, "count", 0, "end after this many rows; default: never")
	c.Flags().BoolVar(&asJSON, "json", false, "print rows as JSON, a line each")
	return c
}

func checkTail(c *cobra.Command, server string, f *client.StreamFilter) error {
	kinds := []string{ledger.EventRow.String(), ledger.EntryRow.String(), ledger.ChangeRow.String()}
	for i, kind := range f.Rows {
		if !slices.Contains(kinds, kind) || slices.Contains(f.Rows[:i], kind) {
			return wrongUse("--rows is event, entry and change, those that are wanted, each once, not %q",
				strings.Join(f.Rows, ","))
		}
	}
	switch {
	case server == "":
		return wrongUse("name a server with --url http://host:port")
	case c.Flags().Changed("from-seq") && f.FromSeq == 0:
		return wrongUse("--from-seq: the first row is 1")
	case c.Flags().Changed("rows") && len(f.Rows) == 0:
		return wrongUse("--rows is empty: leave it out for all that the key may read")
	case os.Getenv(keyVariable) == "":
		return wrongUse("--url needs an API key with the scope read in %s", keyVariable)
	}
	return nil
}

// tail prints rows until the context ends, which is no failure, or the server refuses.
func (r *remote) tail(ctx context.Context, f client.StreamFilter, count uint64, out io.Writer,
	line func([]byte, *client.StreamedRow) ([]byte, error)) error {
	c, err := client.New(r.url, r.key, client.WithTenant(r.tenant), client.WithUserAgent("tallystick-tail"))
	if err != nil {
		return wrongUse("%w", err)
	}
	defer c.CloseIdleConnections()
	printed := uint64(0)
	for row, err := range c.Stream(ctx, f) {
		if err != nil {
			return r.tailEnded(ctx, err)
		}
		b, err := line(nil, &row)
		if err != nil {
			return fmt.Errorf("row %d is not what a tallystick server says: is --url right? %w", row.Seq, err)
		}
		if _, err := out.Write(append(b, '\n')); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		if printed++; printed == count {
			return nil
		}
	}
	return nil
}

// tailEnded is why a stream ended, as the command's own end.
func (r *remote) tailEnded(ctx context.Context, err error) error {
	var p *client.Problem
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // SIGINT is how it ends
	case !errors.As(err, &p):
		return fmt.Errorf("tail: %w", err)
	case r.tenant == "" && len(p.Errors) == 1 && p.Errors[0].Path == gate.TenantHeader:
		return wrongUse("%s holds the operator's key: name the tenant with --tenant", keyVariable)
	case p.Code == "":
		return fmt.Errorf("the server answered %d: is --url right?", p.Status)
	}
	return fmt.Errorf("the server refused: %s: %s", p.Code, p.Detail)
}

// tailLine writes a row for people: number, time of commit, type, then what matters most of it.
func tailLine(b []byte, row *client.StreamedRow) ([]byte, error) {
	var r struct {
		At                                              time.Time
		ID, Status, Meter, Customer, Quantity, Resource string
		Account, Amount, Balance                        string
		Actor                                           string
		EventType                                       string `json:"event_type"`
		EntryType                                       string `json:"entry_type"`
		EntityType                                      string `json:"entity_type"`
		EntityID                                        string `json:"entity_id"`
	}
	if err := json.Unmarshal(row.Data, &r); err != nil {
		return b, err
	}
	var parts []string
	switch {
	case r.EntityType != "":
		parts = []string{r.EntityType, r.EntityID, "by " + r.Actor}
	case r.Account != "":
		parts = []string{r.ID, r.Account, r.EntryType, r.Amount, "balance " + r.Balance}
	default:
		parts = []string{r.ID, r.Status, r.Meter, r.EventType, r.Customer, r.Resource, r.Quantity}
	}
	b = fmt.Appendf(b, "%-6d %s  %-16s", row.Seq, r.At.UTC().Format(time.RFC3339), printable(row.Type))
	for _, part := range parts {
		if part != "" {
			b = append(append(b, "  "...), printable(part)...)
		}
	}
	return b, nil
}

// printable keeps what a client chose as a name from steering the terminal.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
