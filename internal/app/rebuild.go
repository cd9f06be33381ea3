package app

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/heap"
	"github.com/tallystick/tallystick/internal/store/engine"
)

func newRebuildCommand() *cobra.Command {
	var data string
	var asJSON bool
	c := &cobra.Command{
		Use:   "rebuild",
		Short: "Drop derived data and make it again from the journal",
		Long: `Moves the key index and the state of a store that no server has open aside, makes them
again from the journal, and removes the old ones. The journal itself is only read.`,
		Example: `  tallystick rebuild --data ./data && tallystick verify --data ./data`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := mustHoldStore(data); err != nil {
				return err
			}
			heap.Tune()
			bar, began, bytes := progressFor(c, asJSON)("rebuilding"), time.Now(), int64(0)
			err := engine.Rebuild(engine.Options{Dir: data, Fatal: exitOn(c.ErrOrStderr()),
				Progress: func(done, total int64) {
					bytes = done
					bar.bytes(done, total)
				}})
			bar.end()
			if err != nil {
				return fmt.Errorf("rebuild %s: %w", data, err)
			}
			took := time.Since(began)
			if asJSON {
				return printJSON(c.OutOrStdout(), struct {
					OK           bool  `json:"ok"`
					Bytes        int64 `json:"journal_bytes"`
					Milliseconds int64 `json:"milliseconds"`
				}{true, bytes, took.Milliseconds()})
			}
			fmt.Fprintf(c.OutOrStdout(), "ok: rebuilt from %s of journal in %s\n", counted(bytes, "byte"),
				took.Round(time.Millisecond))
			return nil
		},
	}
	c.Flags().StringVar(&data, "data", "./data", "directory of the embedded store")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON, without progress")
	return c
}
