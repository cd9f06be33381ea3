package export

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
)

// viewRows is some tenth of a second of reading.
const viewRows = 50_000

// FromStore reads a store, which may be written to meanwhile.
func FromStore(s store.Store) Source { return fromStore{s, viewRows} }

type fromStore struct {
	store    store.Store
	viewRows int // bounds the rows that one view is held open for
}

// Ledgers implements Source.
func (s fromStore) Ledgers(ctx context.Context, f Filter) ([]Ledger, error) {
	ids := []string{f.Tenant}
	if f.Tenant == "" {
		var err error
		if ids, err = verify.Tenants(ctx, s.store); err != nil {
			return nil, err
		}
	}
	var out []Ledger
	for _, id := range ids {
		l, wanted, err := s.ledger(ctx, id, f.Meter)
		if err != nil {
			return nil, fmt.Errorf("look at tenant %s: %w", id, err)
		}
		if wanted {
			out = append(out, l)
		}
	}
	if len(out) == 0 && f.Meter != "" {
		return nil, problem.New(problem.NotFound, "no meter %q", f.Meter)
	}
	return out, nil
}

// ledger looks at one ledger. It is not wanted if it lacks the meter.
func (s fromStore) ledger(ctx context.Context, id, slug string) (l Ledger, wanted bool, err error) {
	l.Tenant = id
	err = s.store.View(ctx, id, func(v store.View) (err error) {
		l.Head = v.Head().Seq
		l.meters, err = store.Slugs(v)
		return err
	})
	for number, name := range l.meters {
		if name == slug {
			l.number = number
		}
	}
	return l, slug == "" || l.number != 0, err
}

// Rows implements Source.
func (s fromStore) Rows(ctx context.Context, l *Ledger, after uint64, k Kind, f Filter,
	fn func(Row) error) (last uint64, err error) {
	var failed error
	looked := 0
	err = s.store.View(ctx, l.Tenant, func(v store.View) (err error) {
		last, _, err = v.Rows(after, f.hint(k), func(row *ledger.Row) bool {
			if row.Seq > l.Head {
				return false
			}
			if looked++; f.wants(l, k, row) {
				failed = fn(Row{ledger: row})
			}
			return failed == nil && looked < s.viewRows
		})
		return err
	})
	if failed != nil {
		return after, failed
	}
	return min(last, l.Head), err
}

// Lines hands on rows of one ledger, which is looked at anew, as records that Record takes in another process. It
// returns the last row that was looked at, at most until. Errors: NotFound (tenant, meter), and those of fn.
func Lines(ctx context.Context, s store.Store, k Kind, f Filter, after, until uint64,
	fn func(line []byte) error) (last uint64, err error) {
	all, err := fromStore{s, viewRows}.Ledgers(ctx, f)
	if err != nil {
		return after, err
	}
	l := &all[0]
	l.Head = min(l.Head, until)
	if after >= l.Head {
		return after, nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	return fromStore{s, viewRows}.Rows(ctx, l, after, k, f, func(r Row) error {
		buf.Reset()
		rec, err := recordOf(l, k, r.ledger)
		if err == nil {
			err = enc.Encode(rec)
		}
		if err != nil {
			return fmt.Errorf("encode row %d: %w", r.ledger.Seq, err)
		}
		return fn(bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}))
	})
}

func recordOf(l *Ledger, k Kind, r *ledger.Row) (any, error) {
	switch k {
	case Changes:
		return recordOfChange(l, r)
	case Entries:
		return recordOfEntry(l, r)
	default:
		return recordOfEvent(l, r)
	}
}

func (f *Filter) hint(k Kind) store.RowHint {
	h := store.RowHint{Events: k == Events, Entries: k == Entries, Changes: k == Changes}
	if f.From != nil {
		h.From = *f.From
	}
	if f.To != nil {
		h.To = *f.To
	}
	return h
}

func (f *Filter) wants(l *Ledger, k Kind, row *ledger.Row) bool {
	at := row.At
	switch row.Kind() {
	case ledger.EventRow:
		at = row.Event.Time
	case ledger.EntryRow:
		at = row.Entry.Time
	case ledger.ChangeRow:
	}
	switch {
	case row.Kind() != k.rows(),
		f.From != nil && at < *f.From,
		f.To != nil && at >= *f.To:
		return false
	case row.Kind() != ledger.EventRow:
		return true
	case f.Customer != "" && row.Event.Customer != f.Customer:
		return false
	case l.number == 0:
		return true
	}
	for i := range row.Event.Outcomes {
		if row.Event.Outcomes[i].Meter == l.number {
			return true
		}
	}
	return false
}
