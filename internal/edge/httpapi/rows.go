package httpapi

import (
	"github.com/tallystick/tallystick/internal/core/account"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/store"
)

// RowRenderer returns what writes rows as those see them who follow a ledger: number, type and time of commit, then
// what a GET of the row shows. A type that the row has besides is called event_type or entry_type. It knows the meters
// of the view, so that it can write the rows of that view.
func RowRenderer(v store.View) (func(b []byte, r *ledger.Row) []byte, error) {
	names, err := store.Slugs(v)
	if err != nil {
		return nil, err
	}
	return func(b []byte, r *ledger.Row) []byte {
		b = render.Uint(append(b, '{'), "seq", r.Seq)
		b = render.String(b, "type", r.Type())
		b = render.Moment(b, "at", r.At)
		switch r.Kind() {
		case ledger.EventRow:
			b = appendEventMembers(appendEventID(b, r), r, "event_type", names)
		case ledger.EntryRow:
			b = appendEntryMembers(b, r)
		case ledger.ChangeRow:
			b = appendAuditMembers(appendAuditID(b, r), r)
		}
		return append(b, '}')
	}, nil
}

// appendEntryMembers writes an entry of an account, all but its number and the braces.
func appendEntryMembers(b []byte, row *ledger.Row) []byte {
	r := row.Entry
	b = render.String(b, "id", r.ID)
	b = render.String(b, "account", r.Account)
	b = render.String(b, "entry_type", r.Type.String())
	b = render.Amount(b, "amount", r.Amount)
	b = render.Moment(b, "time", r.Time)
	if r.Given&account.GivenSequence != 0 {
		b = render.Uint(b, "sequence", r.Sequence)
	}
	b = render.Present(b, "counter_account", r.Counter)
	b = render.Present(b, "transfer", r.Transfer)
	b = render.Present(b, "hold", r.Hold)
	if r.Expires != 0 {
		b = render.Moment(b, "expires_at", r.Expires)
	}
	b = render.Present(b, "corrects", r.Corrects)
	b = render.Present(b, "reason", r.Reason)
	b = render.Object(b, "metadata", r.Metadata)
	for _, flag := range []struct {
		name string
		set  bool
	}{{"system", r.System}, {"late", r.Late}, {"gap", r.Gap}} {
		if flag.set {
			b = render.Bool(b, flag.name, true)
		}
	}
	b = render.Uint(b, "version", r.Version)
	b = render.Amount(b, "balance", r.Balance)
	b = render.Amount(b, "held", r.Held)
	return render.Moment(b, "received_at", row.At)
}
