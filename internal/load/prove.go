package load

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tallystick/tallystick/client"
)

// ErrTotals says that the server did not count what it acknowledged.
var ErrTotals = errors.New("the server's totals differ from what was sent")

const (
	// listed is how many differences an error names.
	listed = 20
	// pageSize is the largest page of the contract.
	pageSize = 1000
)

// prove compares every counter of the run's tenants with the fold of what was sent, and returns how many there are.
func (r *run) prove(ctx context.Context) (int, error) {
	counters := 0
	var d differences
	for i, c := range r.clients {
		totals := r.w.Totals(i, r.streams)
		counters += totals.Counters()
		if err := r.proveTenant(ctx, c, i, totals, &d); err != nil {
			return counters, fmt.Errorf("read counters: %w", err)
		}
	}
	return counters, d.err()
}

func (r *run) proveTenant(ctx context.Context, c *client.Client, tenant int, totals *Totals, d *differences) error {
	period := r.w.Hour().Format("2006-01")
	meters := map[string]int{}
	for i, slug := range r.w.Meters() {
		meters[slug] = i
	}
	seen := make([]bool, len(totals.count))
	for counter, err := range c.AllCounters(ctx, client.CounterFilter{Paging: client.Paging{Limit: pageSize}}) {
		if err != nil {
			return err
		}
		at := fmt.Sprintf("tenant %d, meter %s, customer %s, period %s", tenant, counter.Meter, counter.Customer,
			counter.Period)
		meter, known := meters[counter.Meter]
		customer, ok := customerIndex(counter.Customer, len(r.w.customers))
		if !known || !ok || counter.Period != period {
			d.add("%s: a counter for which nothing was sent", at)
			continue
		}
		if index := meter*totals.customers + customer; seen[index] {
			d.add("%s: listed twice", at)
		} else {
			seen[index] = true
		}
		count, sum := totals.Of(meter, customer)
		want := client.Decimal(strconv.FormatInt(sum, 10))
		if counter.Count != count || counter.Sum != want || counter.Total != want {
			d.add("%s: sent %d events that sum to %d, the server has %d, sum %s, total %s", at, count, sum,
				counter.Count, counter.Sum, counter.Total)
		}
	}
	for i, was := range seen {
		if !was && totals.count[i] > 0 {
			d.add("tenant %d, meter %s, customer %s, period %s: sent %d events, the server has no counter", tenant,
				r.w.meters[i/totals.customers], r.w.customers[i%totals.customers], period, totals.count[i])
		}
	}
	return nil
}

func customerIndex(name string, customers int) (int, bool) {
	digits, ok := strings.CutPrefix(name, customerPrefix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && n < customers && strconv.Itoa(n) == digits
}

// differences gathers what is wrong; the first few are reported.
type differences struct {
	all   int
	texts []string
}

func (d *differences) add(format string, args ...any) {
	d.all++
	if len(d.texts) < listed {
		d.texts = append(d.texts, fmt.Sprintf(format, args...))
	}
}

func (d *differences) err() error {
	if d.all == 0 {
		return nil
	}
	more := ""
	if d.all > len(d.texts) {
		more = fmt.Sprintf("\n  and %d more", d.all-len(d.texts))
	}
	return fmt.Errorf("%w in %d counters:\n  %s%s", ErrTotals, d.all, strings.Join(d.texts, "\n  "), more)
}
