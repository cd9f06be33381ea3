package httpapi

import (
	"context"
	"math"
	"slices"

	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/service/export"
	"github.com/tallystick/tallystick/internal/service/verify"
)

// verification is the name of what one caller at a time may do for a tenant, or for all.
const verification = "verification "

// getVerification serves GET /v1/verification: of the tenant, or of everything for the operator.
func (s *Server) getVerification(x *httpkit.Exchange) error {
	if err := x.NoQuery(); err != nil {
		return err
	}
	return x.Stream(verification+x.Caller.Tenant, func(ctx context.Context, lines *httpkit.Stream) error {
		var failed error
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		report, err := s.options.Verify(ctx, x.Caller.Tenant, func(stage string, done, total uint64) {
			if failed = lines.Progress(map[string]any{"stage": stage, "done": done, "total": total}); failed != nil {
				stop()
			}
		})
		if failed != nil {
			return failed
		}
		if err != nil {
			return err
		}
		return lines.Document("result", reportOf(&report))
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
func (s *Server) getLedgers(x *httpkit.Exchange) error {
	q, err := x.Query("meter")
	if err != nil {
		return err
	}
	return x.Stream("", func(ctx context.Context, lines *httpkit.Stream) error {
		all, err := export.FromStore(s.options.Store).Ledgers(ctx, export.Filter{Tenant: x.Caller.Tenant,
			Meter: q.Get("meter")})
		if err != nil {
			return err
		}
		for _, l := range all {
			if err := lines.Document("ledger", map[string]any{"id": l.Tenant, "head_seq": l.Head}); err != nil {
				return err
			}
		}
		return lines.Document("result", map[string]any{"ledgers": len(all)})
	})
}

// getLedgerRows serves GET /v1/ledgers/{id}/rows: as many rows as one look at the store gives.
func (s *Server) getLedgerRows(x *httpkit.Exchange) error {
	q, err := x.Query("rows", "after_seq", "until_seq", "meter", "customer", "from", "to")
	if err != nil {
		return err
	}
	kind := export.Kind(q.Get("rows"))
	if kind == "" {
		kind = export.Events
	}
	if !slices.Contains([]export.Kind{export.Events, export.Entries, export.Changes}, kind) {
		return httpkit.BadParameter("rows", "must be events, entries or changes")
	}
	f := export.Filter{Tenant: x.Path("id"), Meter: q.Get("meter"), Customer: q.Get("customer")}
	if kind != export.Events && (f.Meter != "" || f.Customer != "") {
		return httpkit.BadParameter("rows", "meter and customer choose among events")
	}
	if f.From, err = q.Moment("from"); err != nil {
		return err
	}
	if f.To, err = q.Moment("to"); err != nil {
		return err
	}
	after, err := q.Seq("after_seq", 0)
	if err != nil {
		return err
	}
	until, err := q.Seq("until_seq", math.MaxInt64)
	if err != nil {
		return err
	}
	return x.Stream("", func(ctx context.Context, lines *httpkit.Stream) error {
		last, err := export.Lines(ctx, s.options.Store, kind, f, after, until, func(line []byte) error {
			return lines.Line("row", func(b []byte) []byte { return append(b, line...) })
		})
		if err != nil {
			return err
		}
		return lines.Document("result", map[string]any{"last_seq": last})
	})
}
