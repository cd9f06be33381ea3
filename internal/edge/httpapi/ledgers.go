package httpapi

import (
	"context"
	"math"
	"slices"
	"strconv"

	"github.com/tallystick/tallystick/internal/service/export"
	"github.com/tallystick/tallystick/internal/service/verify"
)

// verification is the name of what one caller at a time may do for a tenant, or for all.
const verification = "verification "

// getVerification serves GET /v1/verification: of the tenant, or of everything for the operator.
func getVerification(x *exchange) error {
	if err := x.noQuery(); err != nil {
		return err
	}
	return x.stream(verification+x.caller.Tenant, func(ctx context.Context, s *stream) error {
		var failed error
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		report, err := x.s.options.Verify(ctx, x.caller.Tenant, func(stage string, done, total uint64) {
			if failed = s.progress(map[string]any{"stage": stage, "done": done, "total": total}); failed != nil {
				stop()
			}
		})
		if failed != nil {
			return failed
		}
		if err != nil {
			return err
		}
		return s.document("result", reportOf(&report))
	})
}

// The report, as the command shows it too.
type (
	reportJSON struct {
		OK          bool             `json:"ok"`
		Tenants     int              `json:"tenants"`
		Operator    bool             `json:"operator"`
		Rows        uint64           `json:"rows"`
		Counters    uint64           `json:"counters"`
		Lookups     uint64           `json:"lookups"`
		Found       uint64           `json:"differences_found"`
		Differences []differenceJSON `json:"differences"`
	}
	differenceJSON struct {
		Tenant string `json:"tenant"`
		What   string `json:"what"`
		Want   string `json:"want"`
		Got    string `json:"got"`
	}
)

func reportOf(r *verify.Report) reportJSON {
	out := reportJSON{OK: r.OK(), Tenants: r.Tenants, Operator: r.Operator, Rows: r.Rows, Counters: r.Counters,
		Lookups: r.Lookups, Found: r.Found, Differences: []differenceJSON{}}
	for _, d := range r.Differences {
		out.Differences = append(out.Differences, differenceJSON(d))
	}
	return out
}

// getLedgers serves GET /v1/ledgers: the tenant's, or everybody's and the operator's own.
func getLedgers(x *exchange) error {
	q, err := x.query("meter")
	if err != nil {
		return err
	}
	return x.stream("", func(ctx context.Context, s *stream) error {
		all, err := export.FromStore(x.s.options.Store).Ledgers(ctx, export.Filter{Tenant: x.caller.Tenant,
			Meter: q.get("meter")})
		if err != nil {
			return err
		}
		for _, l := range all {
			if err := s.document("ledger", map[string]any{"id": l.Tenant, "head_seq": l.Head}); err != nil {
				return err
			}
		}
		return s.document("result", map[string]any{"ledgers": len(all)})
	})
}

// getLedgerRows serves GET /v1/ledgers/{id}/rows: as many rows as one look at the store gives.
func getLedgerRows(x *exchange) error {
	q, err := x.query("rows", "after_seq", "until_seq", "meter", "customer", "from", "to")
	if err != nil {
		return err
	}
	kind := export.Kind(q.get("rows"))
	if kind == "" {
		kind = export.Events
	}
	if !slices.Contains([]export.Kind{export.Events, export.Entries, export.Changes}, kind) {
		return badParameter("rows", "must be events, entries or changes")
	}
	f := export.Filter{Tenant: x.param, Meter: q.get("meter"), Customer: q.get("customer")}
	if kind != export.Events && (f.Meter != "" || f.Customer != "") {
		return badParameter("rows", "meter and customer choose among events")
	}
	if f.From, err = q.moment("from"); err != nil {
		return err
	}
	if f.To, err = q.moment("to"); err != nil {
		return err
	}
	after, err := q.seq("after_seq", 0)
	if err != nil {
		return err
	}
	until, err := q.seq("until_seq", math.MaxInt64)
	if err != nil {
		return err
	}
	return x.stream("", func(ctx context.Context, s *stream) error {
		last, err := export.Lines(ctx, x.s.options.Store, kind, f, after, until, func(line []byte) error {
			return s.line("row", func(b []byte) []byte { return append(b, line...) })
		})
		if err != nil {
			return err
		}
		return s.document("result", map[string]any{"last_seq": last})
	})
}

// seq reads the number of a row.
func (q query) seq(name string, otherwise uint64) (uint64, error) {
	text := q.get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, badParameter(name, "must be the number of a row")
	}
	return n, nil
}
