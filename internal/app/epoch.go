package app

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/heap"
	"github.com/tallystick/tallystick/internal/service/registry"
)

func newEpochCommand() *cobra.Command {
	var in place
	var reason string
	var asJSON bool
	c := &cobra.Command{
		Use:   "epoch",
		Short: "Begin a new epoch after commits were lost",
		Long: `Run it once before serving a store that has lost its last commits: a data directory that was
brought back from a copy, or a database that was promoted without the last transactions of the one
before it. Such a store gives numbers to rows again that others have seen on the rows that were lost.
A row in every ledger begins the next epoch, and what leaves the system is named by epoch and number.

It says since when facts must be sent again: send everything from a little before; what the ledger
has is answered as a duplicate. Keys, meters and plans that were made since must be made again.
An embedded store must not be served meanwhile.`,
		Example: `  tallystick epoch --data ./data --reason "restored from the copy of 2026-11-15"
  tallystick epoch --store postgres://tallystick@db.internal/ledger --reason "failover without the last commits"`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if bad := (&tenant.Epoch{Reason: reason}).Check(); bad != nil {
				return wrongUse("say why with --reason, which everybody who reads the ledger sees: %w", bad)
			}
			s, err := in.open(c)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			heap.Tune()
			bar := progressFor(c, asJSON)("ledgers")
			begun, err := registry.New(s, rand.Reader).BeginEpochs(c.Context(), audit.ActorSystem, reason, bar.set)
			bar.end()
			if err != nil {
				return fmt.Errorf("epoch: %w", err)
			}
			if begun.Tenants == 0 && !begun.Operator {
				return errors.New("epoch: nothing was begun: every ledger of this store was moved to another one")
			}
			return showBegun(c.OutOrStdout(), &begun, asJSON)
		},
	}
	in.flags(c)
	c.Flags().StringVar(&reason, "reason", "", "what happened, for those who read the ledger")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON, without progress")
	return c
}

func showBegun(out io.Writer, b *registry.Begun, asJSON bool) error {
	if asJSON {
		return printJSON(out, struct {
			OK          bool      `json:"ok"`
			Tenants     int       `json:"tenants"`
			Operator    bool      `json:"operator"`
			Moved       int       `json:"moved"`
			ResendSince time.Time `json:"resend_since"`
		}{true, b.Tenants, b.Operator, b.Moved, b.Last.Time()})
	}
	ledgers := counted(b.Tenants, "tenant")
	if b.Operator {
		ledgers += " and the operator's own ledger"
	}
	fmt.Fprintf(out, "ok: a new epoch begins in %s; the last commit that is there is of %s: "+
		"send everything again that was sent since a few minutes before it\n", ledgers, b.Last)
	if b.Moved > 0 {
		fmt.Fprintf(out, "%s left alone, because they were moved to another store\n", counted(b.Moved, "ledger"))
	}
	return nil
}
