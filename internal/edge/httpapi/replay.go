package httpapi

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/service/billing"
)

// replayPeriod serves POST /v1/periods/{period}/replay.
func (s *Server) replayPeriod(x *httpkit.Exchange) error {
	q, err := replayRequest(x)
	if err != nil {
		return err
	}
	return x.Stream("replay "+q.Tenant, func(ctx context.Context, lines *httpkit.Stream) error {
		var failed error
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		q.Progress = func(done, total uint64) {
			failed = lines.Progress(map[string]any{"stage": "replaying", "done": done, "total": total})
			if failed != nil {
				stop()
			}
		}
		found := 0
		err := s.options.Billing.Replay(ctx, q, func(d billing.Difference) error {
			found++
			return lines.Line("difference", func(b []byte) []byte { return appendDifference(b, &d) })
		})
		if failed != nil {
			return failed
		}
		if err != nil {
			return err
		}
		return lines.Document("result", map[string]any{"differences": found, "applied": q.Apply})
	})
}

func replayRequest(x *httpkit.Exchange) (q billing.ReplayRequest, err error) {
	if q.Month, err = period(x); err != nil {
		return q, err
	}
	body, err := x.Body()
	if err != nil {
		return q, err
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	f, err := httpkit.ParseForm(body)
	if err != nil {
		return q, err
	}
	q.Tenant, q.Actor = x.Caller.Tenant, x.Caller.Actor()
	f.Text("meter", &q.Meter)
	f.Text("customer", &q.Customer)
	f.Bool("apply", &q.Apply)
	f.Text("reason", &q.Reason)
	q.Aggregation = httpkit.Named(f, "aggregation", meter.ParseAggregation)
	q.Late = httpkit.Named(f, "late", meter.ParseLate)
	q.Lateness = f.GivenDuration("lateness", meter.DefaultLateness)
	return q, f.Done()
}

func appendDifference(b []byte, d *billing.Difference) []byte {
	b = render.String(append(b, '{'), "meter", d.Meter)
	b = render.String(b, "customer", d.Customer)
	b = render.String(b, "on_time_before", d.OnTimeBefore.String())
	b = render.String(b, "on_time_after", d.OnTimeAfter.String())
	b = render.String(b, "total_before", d.TotalBefore.String())
	b = render.String(b, "total_after", d.TotalAfter.String())
	b = render.String(b, "difference", d.Amount().String())
	b = render.Uint(b, "refused", uint64(d.Refused))
	b = render.Present(b, "adjustment", d.Adjustment)
	return append(b, '}')
}
