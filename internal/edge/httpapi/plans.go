package httpapi

import (
	"net/http"
	"strconv"

	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
)

// putPlan serves PUT /v1/plans/{name}.
func (s *Server) putPlan(x *httpkit.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	p := quota.Plan{Name: x.Path("name")}
	for _, one := range f.Objects("quotas") {
		p.Quotas = append(p.Quotas, readQuota(one))
		f.Join(one)
	}
	p.Prices = f.ObjectsText("prices")
	if err := f.Done(); err != nil {
		return err
	}
	kept, err := s.options.Plans.Put(x.Context(), x.Caller.Actor(), x.Caller.Tenant, p)
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, append(appendPlan(nil, &kept), '\n'))
}

func readQuota(f *httpkit.Form) quota.Quota {
	percent := "must be a whole number of percent between 1 and " + strconv.Itoa(quota.MaxThreshold)
	q := quota.Quota{
		Meter: f.Required("meter"), Thresholds: f.Numbers("thresholds", quota.DefaultThresholds, percent),
	}
	q.Limit, _ = f.Amount("limit")
	f.Bool("soft", &q.Soft)
	var ok bool
	if q.Multiplier, ok = f.OptionalAmount("hard_cap_multiplier"); ok && q.Multiplier.IsZero() {
		f.Fault("hard_cap_multiplier", "must be 1 or more; leave it out for a soft limit that never refuses")
	}
	return q
}

// listPlans serves GET /v1/plans.
func (s *Server) listPlans(x *httpkit.Exchange) error {
	q, limit, after, err := x.Page()
	if err != nil {
		return err
	}
	plans, err := s.options.Plans.Plans(x.Context(), x.Caller.Tenant, after, limit+1)
	if err != nil {
		return err
	}
	return httpkit.ListByName(x, q, limit, plans, func(p *quota.Plan) string { return p.Name }, appendPlan)
}

// getPlan serves GET /v1/plans/{name}.
func (s *Server) getPlan(x *httpkit.Exchange) error {
	if err := x.NoQuery(); err != nil {
		return err
	}
	p, err := s.options.Plans.Plan(x.Context(), x.Caller.Tenant, x.Path("name"))
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, append(appendPlan(nil, &p), '\n'))
}

func appendPlan(b []byte, p *quota.Plan) []byte {
	b = render.String(append(b, '{'), "id", p.Name)
	b = render.String(b, "name", p.Name)
	b = append(render.Name(b, "quotas"), '[')
	for i := range p.Quotas {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendPlanQuota(b, &p.Quotas[i])
	}
	b = append(render.Name(append(b, ']'), "prices"), p.Prices...)
	if len(p.Prices) == 0 {
		b = append(b, "[]"...)
	}
	b = render.Moment(b, "created_at", p.CreatedAt)
	b = render.Moment(b, "updated_at", p.UpdatedAt)
	return append(b, '}')
}

func appendPlanQuota(b []byte, q *quota.Quota) []byte {
	b = render.String(append(b, '{'), "meter", q.Meter)
	b = render.Amount(b, "limit", q.Limit)
	b = render.Bool(b, "soft", q.Soft)
	b = render.AmountIf(b, "hard_cap_multiplier", q.Multiplier, !q.Multiplier.IsZero())
	b = append(render.Name(b, "thresholds"), '[')
	for i, percent := range q.Thresholds {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(percent), 10)
	}
	return append(b, ']', '}')
}
