package httpapi

import (
	"net/http"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/service/plans"
)

// putTenantPlan serves PUT /v1/tenant-plan.
func (s *Server) putTenantPlan(x *httpkit.Exchange) error { return s.assign(x, "") }

// getTenantPlan serves GET /v1/tenant-plan.
func (s *Server) getTenantPlan(x *httpkit.Exchange) error { return s.assigned(x, "") }

// putCustomerPlan serves PUT /v1/customers/{id}/plan.
func (s *Server) putCustomerPlan(x *httpkit.Exchange) error { return s.assign(x, x.Path("id")) }

// getCustomerPlan serves GET /v1/customers/{id}/plan.
func (s *Server) getCustomerPlan(x *httpkit.Exchange) error { return s.assigned(x, x.Path("id")) }

// assign puts a plan in force; a null takes it away.
func (s *Server) assign(x *httpkit.Exchange, customer string) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	var plan string
	null := f.IsNull("plan")
	if given := f.Text("plan", &plan); !null && (!given || plan == "") {
		f.Fault("plan", "required: a plan's name, or null for none")
	}
	var at calendar.Micros
	var from *calendar.Micros // null is as absent: now
	if f.Has("from") && !f.IsNull("from") {
		from = &at
	}
	f.Moment("from", &at)
	if err := f.Done(); err != nil {
		return err
	}
	a, err := s.options.Plans.Assign(x.Context(), x.Caller.Actor(), x.Caller.Tenant, customer, plan, from)
	if err != nil {
		return err
	}
	return answerAssigned(x, &a)
}

func (s *Server) assigned(x *httpkit.Exchange, customer string) error {
	if err := x.NoQuery(); err != nil {
		return err
	}
	a, err := s.options.Plans.Assignment(x.Context(), x.Caller.Tenant, customer)
	if problem.Is(err, problem.Invalid) {
		return problem.New(problem.NotFound, "no such customer") // a name in a path that no customer can have
	}
	if err != nil {
		return err
	}
	return answerAssigned(x, &a)
}

func answerAssigned(x *httpkit.Exchange, a *plans.Assigned) error {
	name, id := "customer", a.Customer
	if a.Customer == "" {
		name, id = "tenant", x.Caller.Tenant
	}
	b := render.String([]byte{'{'}, "id", id)
	b = render.String(b, name, id)
	b = render.Optional(b, "plan", a.InForce.Plan)
	b = render.MomentIf(b, "from", a.InForce.From, a.InForce != quota.Dated{})
	b = append(render.Name(b, "assignments"), '[')
	for i, d := range a.Plans {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		b = render.Moment(b, "from", d.From)
		b = append(render.Optional(b, "plan", d.Plan), '}')
	}
	return x.Answer(http.StatusOK, append(b, ']', '}', '\n'))
}
