package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	var server string
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
  tallystick replay --store postgres://tallystick@db.internal/ledger --tenant acme --period 2026-10 \
    --late reject --lateness 24h
  tallystick replay --data ./data --tenant acme --period 2026-10 --meter seats \
    --aggregation max --apply --reason "contract 7 bills the peak"
  TALLYSTICK_KEY=… tallystick replay --url http://127.0.0.1:8080 --tenant acme --period 2026-10 \
    --meter seats --aggregation max`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			q, err := f.request(server != "")
			if err != nil {
				return err
			}
			heap.Tune()
			out := newDifferences(c.OutOrStdout(), asJSON)
			if server != "" {
				err = f.ask(c.Context(), server, progressFor(c, asJSON), out)
			} else {
				err = replayHere(c, &from, q, progressFor(c, asJSON)("replaying"), out)
			}
			if err != nil {
				return fmt.Errorf("replay: %w", err)
			}
			return out.end(q.Apply)
		},
	}
	from.flags(c)
	urlFlag(c, &server)
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each difference")
	return c
}

// replayHere opens the store and replays.
func replayHere(c *cobra.Command, from *place, q billing.ReplayRequest, bar *progressBar,
	out *differences) (err error) {
	s, err := from.open(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	defer bar.end()
	q.Progress = bar.set
	return billing.New(s).Replay(c.Context(), q, out.add)
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
	c.Flags().StringVar(&f.aggregation, "aggregation", "",
		"sum, count, min, max, last, unique or avg; default: as in force")
	c.Flags().StringVar(&f.late, "late", "", "adjust or reject; default: as in force")
	c.Flags().StringVar(&f.lateness, "lateness", "", "`DURATION` like 48h; default: as in force")
	c.Flags().BoolVar(&f.apply, "apply", false, "add each difference to its total as an adjustment")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the adjustments")
}

func (f *replayFlags) request(remote bool) (billing.ReplayRequest, error) {
	q := billing.ReplayRequest{Tenant: f.tenant, Meter: f.meter, Customer: f.customer, Apply: f.apply, Reason: f.reason,
		Actor: replayActor}
	if f.tenant == "" && !remote || f.period == "" { // a tenant's own key names it, too
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

// ask has a running server do it.
func (f *replayFlags) ask(ctx context.Context, address string, bar func(string) *progressBar, out *differences) error {
	r, err := newRemote(address, f.tenant)
	if err != nil {
		return err
	}
	body := map[string]any{"apply": f.apply}
	for name, value := range map[string]string{"meter": f.meter, "customer": f.customer, "aggregation": f.aggregation,
		"late":     f.late,
		"lateness": f.lateness, "reason": f.reason} {
		if value != "" {
			body[name] = value
		}
	}
	take, end := r.progress(bar)
	defer end()
	return r.ask(ctx, http.MethodPost, "/v1/periods/"+f.period+"/replay", body,
		lines{"progress": take, "difference": func(value []byte) error {
			var d differenceLine
			if err := json.Unmarshal(value, &d); err != nil {
				return err
			}
			return out.line(&d)
		}})
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

// differenceLine is a difference as programs read it.
type differenceLine struct {
	Meter        string `json:"meter"`
	Customer     string `json:"customer"`
	OnTimeBefore string `json:"on_time_before"`
	OnTimeAfter  string `json:"on_time_after"`
	TotalBefore  string `json:"total_before"`
	TotalAfter   string `json:"total_after"`
	Difference   string `json:"difference"`
	Refused      int    `json:"refused"`
	Adjustment   string `json:"adjustment,omitempty"`
}

func (d *differences) add(x billing.Difference) error {
	return d.line(&differenceLine{x.Meter, x.Customer, x.OnTimeBefore.String(), x.OnTimeAfter.String(),
		x.TotalBefore.String(), x.TotalAfter.String(), x.Amount().String(), x.Refused, x.Adjustment})
}

func (d *differences) line(x *differenceLine) error {
	d.found++
	if d.lines != nil {
		return d.lines.Encode(x)
	}
	if d.found == 1 {
		fmt.Fprintln(d.table, "meter\tcustomer\ton time\twould be\ttotal\twould be\tdifference\trefused\tadjustment")
	}
	fmt.Fprintf(d.table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", x.Meter, x.Customer, x.OnTimeBefore, x.OnTimeAfter,
		x.TotalBefore, x.TotalAfter, x.Difference, x.Refused, x.Adjustment)
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
