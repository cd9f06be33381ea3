// Package export writes ledger rows to files that other tools read: Parquet, CSV and NDJSON.
//
// It only reads the store. What it has written it never changes: an export into a folder is made of parts, each complete and on
// disk before it has its name, so one that broke off goes on after its last part, and one that was done goes on with what has come
// since. Secrets that the ledger keeps for itself (salts, hashes of keys) are never written.
package export

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
)

// Format is how rows are written.
type Format string

// The formats.
const (
	Parquet Format = "parquet"
	CSV     Format = "csv"
	NDJSON  Format = "ndjson"
)

// Kind is which rows are written.
type Kind string

// The kinds.
const (
	Events  Kind = "events"  // usage events and their corrections
	Changes Kind = "changes" // all other rows: what the audit log tells
)

// Filter says which rows are wanted; zero fields take any.
type Filter struct {
	Tenant   string           `json:"tenant,omitempty"`
	Meter    string           `json:"meter,omitempty"` // of events: one of the meters that the event fed
	Customer string           `json:"customer,omitempty"`
	From     *calendar.Micros `json:"from,omitempty"` // of events: their own time, else the time of the commit; half open
	To       *calendar.Micros `json:"to,omitempty"`
}

// Options of a run.
type Options struct {
	Format Format
	Kind   Kind
	Filter Filter
	// Dir is the folder that takes the parts; Stream takes everything in one piece instead. One of them is required.
	Dir    string
	Stream io.Writer
	// PartRows bounds a part. Default 1,000,000.
	PartRows int
	// Progress is told how many rows were looked at, of how many. Default: nobody is.
	Progress func(done, total uint64)

	viewRows int // bounds the rows that one view is held open for; default 50,000
}

const (
	defaultPartRows = 1_000_000
	defaultViewRows = 50_000
)

// Report is what a run did.
type Report struct {
	Tenants int    `json:"tenants"` // without the operator's own ledger
	Rows    uint64 `json:"rows"`    // written by this run
	Parts   int    `json:"parts"`   // of this run
}

// Run exports the rows that are committed when it begins. Errors: NotFound (no such tenant or meter), Conflict (the folder holds
// an export of something else).
func Run(ctx context.Context, s store.Store, o Options) (Report, error) {
	if o.PartRows == 0 {
		o.PartRows = defaultPartRows
	}
	if o.viewRows == 0 {
		o.viewRows = defaultViewRows
	}
	ids := []string{o.Filter.Tenant}
	if o.Filter.Tenant == "" {
		var err error
		if ids, err = verify.Tenants(ctx, s); err != nil {
			return Report{}, err
		}
	}
	r := &run{ctx: ctx, store: s, options: o}
	if err := r.plan(ids); err != nil {
		return Report{}, err
	}
	out, err := r.output()
	if err != nil {
		return Report{}, err
	}
	err = errors.Join(r.all(out), out.end())
	return r.report, err
}

func (r *run) all(out output) error {
	for i := range r.books {
		if err := r.book(&r.books[i], out); err != nil {
			return fmt.Errorf("export tenant %s: %w", r.books[i].tenant, err)
		}
		if r.books[i].tenant != tenant.Operator {
			r.report.Tenants++
		}
	}
	return nil
}

type run struct {
	ctx     context.Context
	store   store.Store
	options Options
	books   []book
	done    uint64
	total   uint64
	report  Report
}

// book is one tenant's ledger up to where it stood when the run began.
type book struct {
	tenant string
	head   uint64
	meters map[uint32]string
	number uint32 // of the filter's meter; zero: any
	after  uint64 // the last row that was exported before
}

// output takes the rows of one book after another.
type output interface {
	// resume tells after which row of the tenant the output wants to go on.
	resume(tenant string) (after uint64, err error)
	// write takes a row that the filter wants.
	write(b *book, r *ledger.Row) error
	// reached says that all rows up to that one were looked at; the output may end a part there.
	reached(b *book, seq uint64) error
	// finish ends the tenant's last part at the given row.
	finish(b *book, seq uint64) error
	// end releases everything, also after a failure.
	end() error
}

func (r *run) output() (output, error) {
	if r.options.Stream != nil {
		return newStream(r)
	}
	return newFolder(r)
}

// plan looks at every tenant before anything is written.
func (r *run) plan(ids []string) error {
	missing := r.options.Filter.Meter != ""
	for _, id := range ids {
		b := book{tenant: id}
		err := r.store.View(r.ctx, id, func(v store.View) (err error) {
			b.head = v.Head().Seq
			b.meters, err = store.Slugs(v)
			return err
		})
		if err != nil {
			return fmt.Errorf("look at tenant %s: %w", id, err)
		}
		if slug := r.options.Filter.Meter; slug != "" {
			for number, name := range b.meters {
				if name == slug {
					b.number, missing = number, false
				}
			}
			if b.number == 0 {
				continue
			}
		}
		r.total += b.head
		r.books = append(r.books, b)
	}
	if missing {
		return problem.New(problem.NotFound, "no meter %q", r.options.Filter.Meter)
	}
	return nil
}

func (r *run) book(b *book, out output) (err error) {
	if b.after, err = out.resume(b.tenant); err != nil {
		return err
	}
	after := min(b.after, b.head)
	r.tell(after)
	for after < b.head {
		last, err := r.some(b, after, out)
		if err != nil {
			return err
		}
		r.tell(last - after)
		after = last
		if err := out.reached(b, after); err != nil {
			return err
		}
	}
	return out.finish(b, max(b.head, b.after))
}

// some hands on the rows of one view and returns the last that was looked at.
func (r *run) some(b *book, after uint64, out output) (last uint64, err error) {
	var failed error
	looked := 0
	err = r.store.View(r.ctx, b.tenant, func(v store.View) (err error) {
		last, _, err = v.Rows(after, r.hint(), func(row *ledger.Row) bool {
			if row.Seq > b.head {
				return false
			}
			if looked++; r.wants(b, row) {
				failed = out.write(b, row)
				r.report.Rows++
			}
			return failed == nil && looked < r.options.viewRows
		})
		return err
	})
	if failed != nil {
		return after, failed
	}
	return min(last, b.head), err
}

func (r *run) tell(rows uint64) {
	r.done += rows
	if r.options.Progress != nil {
		r.options.Progress(r.done, r.total)
	}
}

func (r *run) hint() store.RowHint {
	f := &r.options.Filter
	h := store.RowHint{Events: r.options.Kind == Events, Changes: r.options.Kind == Changes}
	if f.From != nil {
		h.From = *f.From
	}
	if f.To != nil {
		h.To = *f.To
	}
	return h
}

func (r *run) wants(b *book, row *ledger.Row) bool {
	f := &r.options.Filter
	at := row.At
	if row.Event != nil {
		at = row.Event.Time
	}
	switch {
	case (row.Event != nil) != (r.options.Kind == Events),
		f.From != nil && at < *f.From,
		f.To != nil && at >= *f.To:
		return false
	case row.Event == nil:
		return true
	case f.Customer != "" && row.Event.Customer != f.Customer:
		return false
	case b.number == 0:
		return true
	}
	for i := range row.Event.Outcomes {
		if row.Event.Outcomes[i].Meter == b.number {
			return true
		}
	}
	return false
}
