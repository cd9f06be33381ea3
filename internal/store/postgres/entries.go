package postgres

import (
	"fmt"
	"strconv"

	"github.com/tallystick/tallystick/internal/core/account"
	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
)

const entryColumns = `seq, at, by, id, account, type, amount, time, given, sequence, counter_account, transfer, hold,
	expires_at, corrects, reason, metadata, system, late, gap, version, balance, held`

var (
	addEntries = &statement{name: "add_entries", sql: `INSERT INTO entries (tenant_id, at, seq, by, id, account, type,
			amount, time, given, sequence, counter_account, transfer, hold, expires_at, corrects, reason, metadata,
			system, late, gap, version, balance, held)
		SELECT h.tenant_id, $2, unnest($3::bigint[]), unnest($4::text[]), unnest($5::text[]), unnest($6::text[]),
			unnest($7::text[]), unnest($8::numeric[]), unnest($9::timestamptz[]), unnest($10::smallint[]),
			unnest($11::numeric[]), unnest($12::text[]), unnest($13::text[]), unnest($14::text[]),
			unnest($15::timestamptz[]), unnest($16::text[]), unnest($17::text[]), unnest($18::text[]),
			unnest($19::boolean[]), unnest($20::boolean[]), unnest($21::boolean[]), unnest($22::bigint[]),
			unnest($23::numeric[]), unnest($24::numeric[])
		FROM heads h WHERE h.tenant_id = $1`}
	entriesBetween = &statement{name: "entries_between", sql: "SELECT " + entryColumns + ` FROM entries
		WHERE tenant_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq`}
	entriesAfter = &statement{name: "entries_after", sql: "SELECT " + entryColumns + ` FROM entries
		WHERE tenant_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`}
)

// entryArrays are entries of accounts as the parameters of an insert.
type entryArrays struct {
	seq, by, id, account, typ, amount, time, given, sequence array
	counter, transfer, hold, expires                         array
	corrects, reason, metadata, system, late, gap            array
	version, balance, held                                   array
}

func (a *entryArrays) reset() {
	for _, x := range [...]*array{&a.by, &a.id, &a.account, &a.typ, &a.counter, &a.transfer, &a.hold, &a.corrects,
		&a.reason, &a.metadata} {
		x.reset(oidText)
	}
	for _, x := range [...]*array{&a.amount, &a.sequence, &a.balance, &a.held} {
		x.reset(oidNumeric)
	}
	for _, x := range [...]*array{&a.system, &a.late, &a.gap} {
		x.reset(oidBool)
	}
	a.seq.reset(oidInt8)
	a.version.reset(oidInt8)
	a.time.reset(oidTimestamptz)
	a.expires.reset(oidTimestamptz)
	a.given.reset(oidInt2)
}

func (a *entryArrays) add(r *ledger.Row) {
	e := r.Entry
	a.seq.int8(int64(r.Seq))
	a.by.optional(r.By)
	a.id.text(e.ID)
	a.account.text(e.Account)
	a.typ.text(e.Type.String())
	a.amount.amount(e.Amount)
	a.time.time(e.Time)
	a.given.int2(int16(e.Given))
	a.sequence.amount(wholeAmount(e.Sequence))
	a.counter.optional(e.Counter)
	a.transfer.optional(e.Transfer)
	a.hold.optional(e.Hold)
	if e.Expires == 0 {
		a.expires.null()
	} else {
		a.expires.time(e.Expires)
	}
	a.corrects.optional(e.Corrects)
	a.reason.optional(e.Reason)
	a.metadata.optional(e.Metadata)
	a.system.bool(e.System)
	a.late.bool(e.Late)
	a.gap.bool(e.Gap)
	a.version.int8(int64(e.Version))
	a.balance.amount(e.Balance)
	a.held.amount(e.Held)
}

func (a *entryArrays) params(tenantID string, at calendar.Micros) [][]byte {
	return [][]byte{[]byte(tenantID), timeParam(at), a.seq.param(), a.by.param(), a.id.param(), a.account.param(),
		a.typ.param(), a.amount.param(), a.time.param(), a.given.param(), a.sequence.param(), a.counter.param(),
		a.transfer.param(), a.hold.param(), a.expires.param(), a.corrects.param(), a.reason.param(),
		a.metadata.param(), a.system.param(), a.late.param(), a.gap.param(), a.version.param(), a.balance.param(),
		a.held.param()}
}

// readEntry reads the columns of entryColumns into memory of its own.
func readEntry(in *reader) (ledger.Row, error) {
	r := ledger.Row{Seq: uint64(in.int8()), At: in.time(), By: in.text()}
	e := &account.Row{}
	e.ID, e.Account = in.text(), in.text()
	typ := in.text()
	e.Amount, e.Time, e.Given = in.amount(), in.time(), account.Given(in.int2())
	sequence := in.amount()
	e.Counter, e.Transfer, e.Hold = in.text(), in.text(), in.text()
	if in.isNull() {
		in.skip(1)
	} else {
		e.Expires = in.time()
	}
	e.Corrects, e.Reason, e.Metadata = in.text(), in.text(), in.text()
	e.System, e.Late, e.Gap, e.Version = in.bool(), in.bool(), in.bool(), uint64(in.int8())
	e.Balance, e.Held = in.amount(), in.amount()
	if in.err != nil {
		return r, in.err
	}
	for e.Type = account.Credit; e.Type.String() != typ; e.Type++ {
		if e.Type == account.Release {
			return r, fmt.Errorf("row %d is an entry of type %q, which does not exist", r.Seq, typ)
		}
	}
	var err error
	if e.Sequence, err = strconv.ParseUint(sequence.String(), 10, 64); err != nil {
		return r, fmt.Errorf("read the sequence of row %d: %w", r.Seq, err)
	}
	r.Entry = e
	return r, nil
}

// wholeAmount is a whole number as an amount, which has room for all of them.
func wholeAmount(n uint64) amount.Amount {
	a, err := amount.Parse(strconv.FormatUint(n, 10))
	if err != nil {
		panic(fmt.Sprintf("postgres: %d is no amount: %v", n, err))
	}
	return a
}

// entry adds an entry that was decided elsewhere. Errors: Conflict (no entry is like this).
func (h *history) entry(r *ledger.Row) error {
	if t := r.Entry.Type; t < account.Credit || t > account.Release {
		return problem.New(problem.Conflict, "row %d is an entry of a type that does not exist", r.Seq)
	}
	h.rows = append(h.rows, ledger.Row{Seq: h.first + uint64(len(h.rows)), At: h.now, By: r.By, Entry: r.Entry})
	return nil
}
