package httpapi

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/service/billing"
)

// replayPeriod serves POST /v1/periods/{period}/replay.
func replayPeriod(x *exchange) error {
	q, err := x.replayRequest()
	if err != nil {
		return err
	}
	return x.stream("replay "+q.Tenant, func(ctx context.Context, s *stream) error {
		var failed error
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		q.Progress = func(done, total uint64) {
			if failed = s.progress(map[string]any{"stage": "replaying", "done": done, "total": total}); failed != nil {
				stop()
			}
		}
		found := 0
		err := x.s.options.Billing.Replay(ctx, q, func(d billing.Difference) error {
			found++
			return s.line("difference", func(b []byte) []byte { return appendDifference(b, &d) })
		})
		if failed != nil {
			return failed
		}
		if err != nil {
			return err
		}
		return s.document("result", map[string]any{"differences": found, "applied": q.Apply})
	})
}

func (x *exchange) replayRequest() (q billing.ReplayRequest, err error) {
	if q.Month, err = x.period(); err != nil {
		return q, err
	}
	body, err := x.setupBody()
	if err != nil {
		return q, err
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	f, err := parseForm(body)
	if err != nil {
		return q, err
	}
	q.Tenant, q.Actor = x.caller.Tenant, x.caller.Actor()
	f.text("meter", &q.Meter)
	f.text("customer", &q.Customer)
	f.bool("apply", &q.Apply)
	f.text("reason", &q.Reason)
	q.Aggregation = named(f, "aggregation", meter.ParseAggregation)
	q.Late = named(f, "late", meter.ParseLate)
	q.Lateness = f.givenDuration("lateness", meter.DefaultLateness)
	return q, f.done()
}

func appendDifference(b []byte, d *billing.Difference) []byte {
	b = appendString(append(b, '{'), "meter", d.Meter)
	b = appendString(b, "customer", d.Customer)
	b = appendString(b, "on_time_before", d.OnTimeBefore.String())
	b = appendString(b, "on_time_after", d.OnTimeAfter.String())
	b = appendString(b, "total_before", d.TotalBefore.String())
	b = appendString(b, "total_after", d.TotalAfter.String())
	b = appendString(b, "difference", d.Amount().String())
	b = appendUint(b, "refused", uint64(d.Refused))
	b = appendPresent(b, "adjustment", d.Adjustment)
	return append(b, '}')
}
