package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/heap"
	"github.com/tallystick/tallystick/internal/service/billing"
)

// replayActor is who adjustments by a replay name: whoever runs the command has the store's own files or database.
const replayActor = "operator"

func newReplayCommand() *cobra.Command {
	var from place
	var f replayFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "replay",
		Short: "Compute a month anew with other settings, and perhaps bill the difference",
		Long: `Decides the rows of a month again, in the order they came, as if the meters had had other settings,
and lists the counters that come out different. Nothing is changed, unless --apply: then each difference
becomes an adjustment with the reason. Applying the same again changes nothing more, and applying other
settings takes the place of what was applied before. A setting that is not named is the one in force: that
of the last replay applied to the counter and not reverted, else the meter's own. To undo a replay, name the
meter's own setting, or revert its adjustments. What a meter refused is in no ledger and is not seen.`,
		Example: `  tallystick replay --data ./data --tenant acme --period 2026-10 --meter seats --aggregation max
  tallystick replay --store postgres://tallystick@db.internal/ledger --tenant acme --period 2026-10 --late reject --lateness 24h
  tallystick replay --data ./data --tenant acme --period 2026-10 --meter seats --aggregation max --apply --reason "contract 7 bills the peak"`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			q, err := f.request()
			if err != nil {
				return err
			}
			s, err := from.open(c)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			heap.Tune()
			bills := billing.New(s)
			out := newDifferences(c.OutOrStdout(), asJSON)
			if err := bills.Replay(c.Context(), q, out.add); err != nil {
				return fmt.Errorf("replay: %w", err)
			}
			return out.end(q.Apply)
		},
	}
	from.flags(c)
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each difference")
	return c
}

type replayFlags struct {
	tenant, period, meter, customer string
	aggregation, late, lateness     string
	apply                           bool
	reason                          string
}

func (f *replayFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.tenant, "tenant", "", "whose ledger")
	c.Flags().StringVar(&f.period, "period", "", "the month, `yyyy-mm`")
	c.Flags().StringVar(&f.meter, "meter", "", "only this meter; default: all")
	c.Flags().StringVar(&f.customer, "customer", "", "only this customer; default: all")
	c.Flags().StringVar(&f.aggregation, "aggregation", "", "sum, count, min, max, last, unique or avg; default: as in force")
	c.Flags().StringVar(&f.late, "late", "", "adjust or reject; default: as in force")
	c.Flags().StringVar(&f.lateness, "lateness", "", "`DURATION` like 48h; default: as in force")
	c.Flags().BoolVar(&f.apply, "apply", false, "add each difference to its total as an adjustment")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the adjustments")
}

func (f *replayFlags) request() (billing.ReplayRequest, error) {
	q := billing.ReplayRequest{Tenant: f.tenant, Meter: f.meter, Customer: f.customer, Apply: f.apply, Reason: f.reason, Actor: replayActor}
	if f.tenant == "" || f.period == "" {
		return q, wrongUse("name a tenant and a month with --tenant and --period")
	}
	var err error
	if q.Month, err = calendar.ParseMonth(f.period); err != nil {
		return q, wrongUse("--period: %q is not a month like 2026-11", f.period)
	}
	if f.apply && f.reason == "" {
		return q, wrongUse("--apply needs a --reason, which every adjustment shows")
	}
	if f.aggregation != "" {
		a, p := meter.ParseAggregation(f.aggregation)
		if p != nil {
			return q, wrongUse("--aggregation: %s", p.Detail)
		}
		q.Aggregation = &a
	}
	if f.late != "" {
		l, p := meter.ParseLate(f.late)
		if p != nil {
			return q, wrongUse("--late: %s", p.Detail)
		}
		q.Late = &l
	}
	if f.lateness != "" {
		d, err := time.ParseDuration(f.lateness)
		if err != nil || d < 0 || d > meter.MaxLateness {
			return q, wrongUse("--lateness: %q is not a duration like 48h, up to %s", f.lateness, meter.MaxLateness)
		}
		q.Lateness = &d
	}
	return q, nil
}

// differences prints what a replay finds: a table for people, lines of JSON for programs.
type differences struct {
	table *tabwriter.Writer
	lines *json.Encoder
	found int
}

func newDifferences(w io.Writer, asJSON bool) *differences {
	if asJSON {
		return &differences{lines: json.NewEncoder(w)}
	}
	return &differences{table: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
}

func (d *differences) add(x billing.Difference) error {
	d.found++
	if d.lines != nil {
		return d.lines.Encode(struct {
			Meter        string `json:"meter"`
			Customer     string `json:"customer"`
			OnTimeBefore string `json:"on_time_before"`
			OnTimeAfter  string `json:"on_time_after"`
			TotalBefore  string `json:"total_before"`
			TotalAfter   string `json:"total_after"`
			Difference   string `json:"difference"`
			Refused      int    `json:"refused"`
			Adjustment   string `json:"adjustment,omitempty"`
		}{x.Meter, x.Customer, x.OnTimeBefore.String(), x.OnTimeAfter.String(), x.TotalBefore.String(), x.TotalAfter.String(), x.Amount().String(), x.Refused, x.Adjustment})
	}
	if d.found == 1 {
		fmt.Fprintln(d.table, "meter\tcustomer\ton time\twould be\ttotal\twould be\tdifference\trefused\tadjustment")
	}
	fmt.Fprintf(d.table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", x.Meter, x.Customer, x.OnTimeBefore, x.OnTimeAfter, x.TotalBefore, x.TotalAfter, x.Amount(), x.Refused, x.Adjustment)
	return nil
}

func (d *differences) end(applied bool) error {
	if d.table == nil {
		return nil
	}
	if d.found == 0 {
		fmt.Fprintln(d.table, "no difference")
	} else if !applied {
		fmt.Fprintln(d.table, "nothing was changed: --apply adds the differences to the totals")
	}
	return d.table.Flush()
}
