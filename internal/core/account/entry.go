// Package account holds what a ledger keeps of accounts: entries. An entry credits or debits an account, or holds a
// part of its balance. It is a ledger row like a usage event; its rules are not here yet, its shape is.
package account

import (
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
)

// Type is what an entry does to its account.
type Type uint8

// The types of entries.
const (
	Credit  Type = iota + 1 // adds to the balance
	Debit                   // takes from it; one that names a hold captures it
	Hold                    // reserves a part of it
	Release                 // lets go of what a hold still reserves
)

var typeNames = [...]string{Credit: "credit", Debit: "debit", Hold: "hold", Release: "release"}

func (t Type) String() string { return typeNames[t] }

// Given says which optional parts the client gave, so that what it sent can be distinguished from what the server
// completed.
type Given uint8

// The optional parts that the server may complete.
const (
	GivenTime Given = 1 << iota
	GivenSequence
)

// Entry is an entry as it was sent. Ids of entries have a name space of their own, apart from those of events.
type Entry struct {
	ID       string
	Account  string
	Type     Type
	Amount   amount.Amount // more than zero
	Time     calendar.Micros
	Given    Given
	Sequence uint64          // of its source; see GivenSequence
	Counter  string          // the account on the other side of a transfer
	Transfer string          // the id that both halves of a transfer share
	Hold     string          // the hold that a debit captures or a release ends
	Expires  calendar.Micros // of a hold or a credit; zero: never
	Corrects string          // the entry that this one corrects
	Reason   string          // of a correction
	Metadata string          // a canonical JSON object, "" when absent
}

// Row is an entry as the ledger keeps it: what was sent, completed with what the server decided.
type Row struct {
	Entry
	System  bool          // the server made it: it never moves the account's last time or sequence
	Late    bool          // older than the account's last, and applied all the same
	Gap     bool          // its sequence leaves one out
	Version uint64        // of the account, with it
	Balance amount.Amount // of the account, with it
	Held    amount.Amount // of that, reserved by holds
}

// Clone gives the row memory of its own: its strings may belong to a request or to a file's buffer.
func (r *Row) Clone() *Row {
	c := *r
	for _, s := range c.strings() {
		*s = strings.Clone(*s)
	}
	return &c
}

func (e *Entry) strings() [8]*string {
	return [...]*string{&e.ID, &e.Account, &e.Counter, &e.Transfer, &e.Hold, &e.Corrects, &e.Reason, &e.Metadata}
}
