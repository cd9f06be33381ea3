package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
)

// putPlan serves PUT /v1/plans/{name}.
func putPlan(x *exchange) error {
	f, err := x.form()
	if err != nil {
		return err
	}
	p := quota.Plan{Name: x.param}
	for _, one := range f.objects("quotas") {
		p.Quotas = append(p.Quotas, readQuota(one))
		f.join(one)
	}
	p.Prices = f.prices("prices")
	if err := f.done(); err != nil {
		return err
	}
	kept, err := x.s.options.Plans.Put(x.r.Context(), x.caller.Actor(), x.caller.Tenant, p)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, append(appendPlan(nil, &kept), '\n'))
}

func readQuota(f *form) quota.Quota {
	q := quota.Quota{Meter: f.required("meter"), Thresholds: f.percents("thresholds", quota.DefaultThresholds)}
	q.Limit = f.amount("limit")
	f.bool("soft", &q.Soft)
	if f.fields["hard_cap_multiplier"] == nil {
		delete(f.fields, "hard_cap_multiplier")
		return q
	}
	noted := len(f.wrong)
	q.Multiplier = f.amount("hard_cap_multiplier")
	if q.Multiplier.IsZero() && len(f.wrong) == noted {
		f.fault("hard_cap_multiplier", "must be 1 or more; leave it out for a soft limit that never refuses")
	}
	return q
}

// objects reads an array of objects; it is empty when absent or null.
func (f *form) objects(name string) (out []*form) {
	v, _ := f.take(name)
	items, ok := v.([]any)
	if !ok && v != nil {
		f.fault(name, "must be an array of objects")
	}
	for i, item := range items {
		fields, ok := item.(map[string]any)
		path := name + "[" + strconv.Itoa(i) + "]"
		if !ok {
			f.fault(path, "must be an object")
			continue
		}
		out = append(out, &form{prefix: f.prefix + path + ".", fields: fields})
	}
	return out
}

// prices keeps an array of objects as it is; billing reads it.
func (f *form) prices(name string) []byte {
	v := f.fields[name]
	f.objects(name)
	items, _ := v.([]any)
	if len(items) == 0 {
		return nil
	}
	b, err := json.Marshal(items)
	if err != nil {
		f.fault(name, "cannot be kept")
	}
	return b
}

// amount reads a decimal that must be there.
func (f *form) amount(name string) amount.Amount {
	noted := len(f.wrong)
	text := f.decimal(name)
	if len(f.wrong) > noted {
		return amount.Zero
	}
	a, err := amount.Parse(text)
	if err != nil {
		f.fault(name, err.Error())
	}
	return a
}

func (f *form) bool(name string, into *bool) {
	v, given := f.take(name)
	if !given || v == nil {
		return
	}
	b, ok := v.(bool)
	if !ok {
		f.fault(name, "must be true or false")
		return
	}
	*into = b
}

// percents reads whole numbers; absent or null is the default, an empty array none.
func (f *form) percents(name string, otherwise []uint16) []uint16 {
	v, given := f.take(name)
	if !given || v == nil {
		return otherwise
	}
	items, ok := v.([]any)
	if !ok {
		f.fault(name, "must be an array of whole numbers")
		return nil
	}
	var out []uint16
	for i, item := range items {
		number, _ := item.(json.Number)
		n, err := strconv.ParseUint(number.String(), 10, 16)
		if err != nil {
			f.fault(name+"["+strconv.Itoa(i)+"]", "must be a whole number of percent between 1 and "+strconv.Itoa(quota.MaxThreshold))
			return nil
		}
		out = append(out, uint16(n))
	}
	return out
}

// listPlans serves GET /v1/plans.
func listPlans(x *exchange) error {
	q, limit, after, err := x.page()
	if err != nil {
		return err
	}
	plans, err := x.s.options.Plans.Plans(x.r.Context(), x.caller.Tenant, after, limit+1)
	if err != nil {
		return err
	}
	return listByName(x, q, limit, plans, func(p *quota.Plan) string { return p.Name }, appendPlan)
}

// getPlan serves GET /v1/plans/{name}.
func getPlan(x *exchange) error {
	if err := x.noQuery(); err != nil {
		return err
	}
	p, err := x.s.options.Plans.Plan(x.r.Context(), x.caller.Tenant, x.param)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, append(appendPlan(nil, &p), '\n'))
}

func appendPlan(b []byte, p *quota.Plan) []byte {
	b = appendString(append(b, '{'), "id", p.Name)
	b = appendString(b, "name", p.Name)
	b = append(appendName(b, "quotas"), '[')
	for i := range p.Quotas {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendPlanQuota(b, &p.Quotas[i])
	}
	b = append(appendName(append(b, ']'), "prices"), p.Prices...)
	if len(p.Prices) == 0 {
		b = append(b, "[]"...)
	}
	b = appendMoment(b, "created_at", p.CreatedAt)
	b = appendMoment(b, "updated_at", p.UpdatedAt)
	return append(b, '}')
}

func appendPlanQuota(b []byte, q *quota.Quota) []byte {
	b = appendString(append(b, '{'), "meter", q.Meter)
	b = appendAmount(b, "limit", q.Limit)
	b = appendBool(b, "soft", q.Soft)
	b = appendAmountIf(b, "hard_cap_multiplier", q.Multiplier, !q.Multiplier.IsZero())
	b = append(appendName(b, "thresholds"), '[')
	for i, percent := range q.Thresholds {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(percent), 10)
	}
	return append(b, ']', '}')
}

// putTenantPlan serves PUT /v1/tenant-plan.
func putTenantPlan(x *exchange) error { return x.assign("") }

// getTenantPlan serves GET /v1/tenant-plan.
func getTenantPlan(x *exchange) error { return x.assigned("") }

// putCustomerPlan serves PUT /v1/customers/{id}/plan.
func putCustomerPlan(x *exchange) error { return x.assign(x.param) }

// getCustomerPlan serves GET /v1/customers/{id}/plan.
func getCustomerPlan(x *exchange) error { return x.assigned(x.param) }

// assign puts a plan in force; a null takes it away.
func (x *exchange) assign(customer string) error {
	f, err := x.form()
	if err != nil {
		return err
	}
	a := quota.Assignment{Customer: customer}
	v, given := f.fields["plan"]
	if f.text("plan", &a.Plan); !given || a.Plan == "" && v != nil {
		f.fault("plan", "required: a plan's name, or null for none")
	}
	if err := f.done(); err != nil {
		return err
	}
	if err := x.s.options.Plans.Assign(x.r.Context(), x.caller.Actor(), x.caller.Tenant, a); err != nil {
		return err
	}
	return x.answerAssignment(a)
}

func (x *exchange) assigned(customer string) error {
	if err := x.noQuery(); err != nil {
		return err
	}
	a, err := x.s.options.Plans.Assignment(x.r.Context(), x.caller.Tenant, customer)
	if problem.Is(err, problem.Invalid) {
		return problem.New(problem.NotFound, "no such customer") // a name in a path that no customer can have
	}
	if err != nil {
		return err
	}
	return x.answerAssignment(a)
}

func (x *exchange) answerAssignment(a quota.Assignment) error {
	name, id := "customer", a.Customer
	if a.Customer == "" {
		name, id = "tenant", x.caller.Tenant
	}
	b := appendString([]byte{'{'}, "id", id)
	b = appendString(b, name, id)
	b = appendOptional(b, "plan", a.Plan)
	return x.answer(http.StatusOK, append(b, '}', '\n'))
}
