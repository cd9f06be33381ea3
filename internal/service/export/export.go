// Package export writes ledger rows to files that other tools read: Parquet, CSV and NDJSON.
//
// It only reads the store. What it has written it never changes: an export into a folder is made of parts, each
// complete and on disk before it has its name, so one that broke off goes on after its last part, and one that was done
// goes on with what has come since. Secrets that the ledger keeps for itself (salts, hashes of keys) are never written.
package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tenant"
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
	Entries Kind = "entries" // of accounts
	Changes Kind = "changes" // what the audit log shows
)

// rows are the rows of a kind.
func (k Kind) rows() ledger.RowKind {
	switch k {
	case Entries:
		return ledger.EntryRow
	case Changes:
		return ledger.ChangeRow
	case Events:
	}
	return ledger.EventRow
}

// Filter says which rows are wanted; zero fields take any.
type Filter struct {
	Tenant   string `json:"tenant,omitempty"`
	Meter    string `json:"meter,omitempty"` // of events: one of the meters that the event fed
	Customer string `json:"customer,omitempty"`
	// From and To are half open: of events their own time, else the time of the commit.
	From *calendar.Micros `json:"from,omitempty"`
	To   *calendar.Micros `json:"to,omitempty"`
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
	// Progress gets how many rows were looked at, of how many. Default: nothing is called.
	Progress func(done, total uint64)
}

const defaultPartRows = 1_000_000

// Report is what a run did.
type Report struct {
	Tenants int    `json:"tenants"` // without the operator's own ledger
	Rows    uint64 `json:"rows"`    // written by this run
	Parts   int    `json:"parts"`   // of this run
}

// Source is where rows are read from: a store, or a server that reads one.
type Source interface {
	// Ledgers lists the ledgers that the filter names, and where they end now. Errors: NotFound (no such tenant or
	// meter).
	Ledgers(ctx context.Context, f Filter) ([]Ledger, error)
	// Rows calls fn for rows of the ledger above after that are wanted, in order, and returns the last that was looked
	// at: its last row, or an earlier one after some time. Errors: those of fn.
	Rows(ctx context.Context, l *Ledger, after uint64, k Kind, f Filter, fn func(Row) error) (last uint64, err error)
}

// Ledger is one tenant's, up to where it stood.
type Ledger struct {
	Tenant string
	Head   uint64

	meters map[uint32]string
	number uint32 // of the filter's meter; zero: any
}

// Row is one that is written: the ledger's own, or a record that another process made of it, as NDJSON has it.
type Row struct {
	ledger *ledger.Row
	record []byte
}

// Record is a row that Lines has written.
func Record(line []byte) Row { return Row{record: line} }

// seq is the row's number.
func (r Row) seq() (uint64, error) {
	if r.ledger != nil {
		return r.ledger.Seq, nil
	}
	var rec struct {
		Seq uint64 `json:"seq"`
	}
	if err := json.Unmarshal(r.record, &rec); err != nil {
		return 0, fmt.Errorf("read the number of a record of another process: %w", err)
	}
	if rec.Seq == 0 {
		return 0, errors.New("a record of another process has no number")
	}
	return rec.Seq, nil
}

// Run exports the rows that are committed when it begins. Errors: NotFound (no such tenant or meter), Conflict (the
// folder holds an export of something else).
func Run(ctx context.Context, s Source, o Options) (Report, error) {
	if o.PartRows == 0 {
		o.PartRows = defaultPartRows
	}
	r := &run{ctx: ctx, source: s, options: o}
	if err := r.plan(); err != nil {
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
	for i := range r.ledgers {
		if err := r.export(&r.ledgers[i], out); err != nil {
			return fmt.Errorf("export tenant %s: %w", r.ledgers[i].Tenant, err)
		}
		if r.ledgers[i].Tenant != tenant.Operator {
			r.report.Tenants++
		}
	}
	return nil
}

type run struct {
	ctx     context.Context
	source  Source
	options Options
	ledgers []exported
	done    uint64
	total   uint64
	report  Report
}

// exported is one tenant's ledger up to where it stood when the run began.
type exported struct {
	Ledger
	after uint64 // the last row that was exported before
}

// output takes the rows of one ledger after another.
type output interface {
	// resume returns after which row of the tenant the output wants to go on.
	resume(tenant string) (after uint64, err error)
	// write takes a row that the filter wants.
	write(b *exported, r Row) error
	// reached says that all rows up to that one were looked at; the output may end a part there.
	reached(b *exported, seq uint64) error
	// finish ends the tenant's last part at the given row.
	finish(b *exported, seq uint64) error
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
func (r *run) plan() error {
	all, err := r.source.Ledgers(r.ctx, r.options.Filter)
	for _, l := range all {
		r.total += l.Head
		r.ledgers = append(r.ledgers, exported{Ledger: l})
	}
	return err
}

func (r *run) export(b *exported, out output) (err error) {
	if b.after, err = out.resume(b.Tenant); err != nil {
		return err
	}
	after := min(b.after, b.Head)
	r.progress(after)
	for after < b.Head {
		last, err := r.some(b, after, out)
		if err != nil {
			return err
		}
		r.progress(last - after)
		after = last
		if err := out.reached(b, after); err != nil {
			return err
		}
	}
	return out.finish(b, max(b.Head, b.after))
}

// some hands on rows and returns the last that was looked at.
func (r *run) some(b *exported, after uint64, out output) (last uint64, err error) {
	return r.source.Rows(r.ctx, &b.Ledger, after, r.options.Kind, r.options.Filter, func(row Row) error {
		r.report.Rows++
		return out.write(b, row)
	})
}

func (r *run) progress(rows uint64) {
	r.done += rows
	if r.options.Progress != nil {
		r.options.Progress(r.done, r.total)
	}
}
