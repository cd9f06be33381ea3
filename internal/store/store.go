// Package store is the port behind which facts become permanent: interfaces and the shapes that pass through them,
// nothing else. Every implementation passes storetest, and no driver's type appears here.
package store

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Batch is one tenant's facts in order. It commits whole or not at all. The store may complete the events in place and
// keeps none of their memory once Record has returned.
type Batch struct {
	Tenant string
	By     string // the API key or the source that brings the facts; their rows name it
	Events []usage.Event
	// Atomic: one refusal, also a conflict, refuses all; see usage.Rehearse.
	Atomic bool
}

// MaxBatch bounds the events of a batch.
const MaxBatch = 10_000

// MaxBy bounds the bytes of who brings a batch.
const MaxBy = 128

// Check refuses a batch that no store takes. Errors: TooLarge, Malformed.
func (b *Batch) Check() error {
	if len(b.Events) > MaxBatch {
		return problem.New(problem.TooLarge, "at most %d events in a batch, this has %d", MaxBatch, len(b.Events))
	}
	if len(b.By) > MaxBy || !utf8.ValidString(b.By) || strings.IndexByte(b.By, 0) >= 0 {
		return problem.New(problem.Malformed, "who brings a batch is named by at most %d bytes of UTF-8 without NUL",
			MaxBy)
	}
	return nil
}

// Store makes facts permanent. All methods are safe for concurrent use. Besides the errors they name, they return
// problem.Busy when queues are full and problem.Unavailable when the store cannot commit or read now; nothing was then
// changed, except that a context that ends while a commit is under way leaves its outcome unknown: a retry is absorbed.
type Store interface {
	Followers

	// Record judges and commits the batch's facts and answers when all that the verdicts rest on is durable. Verdicts
	// stand in the order of the events. A closed tenant knows its facts as duplicates and refuses all others. Of an
	// atomic batch with a refusal nothing is committed, and the facts that are not refused are answered Withheld.
	// Errors: NotFound (no such tenant), TooLarge, Malformed (see Batch.Check).
	Record(ctx context.Context, b Batch) ([]usage.Verdict, error)

	// Update runs fn and commits the changes it appended, all or none; an error of fn discards them and is returned as
	// it is. fn may run more than once and must only act through tx. A panic of fn is an error of this call alone (see
	// RunUpdate). A tenant comes into being with the change that creates it. Errors: NotFound (fn appended to a tenant
	// that does not exist and did not create it).
	Update(ctx context.Context, tenantID string, fn func(tx Tx) error) error

	// View runs fn on the tenant's ledger. It shows at least everything that was answered before View was called, and
	// nothing that is not durable. Errors: NotFound.
	View(ctx context.Context, tenantID string, fn func(v View) error) error

	// Access returns a tenant and one of its API keys as this store last committed them, without waiting for facts
	// under way; what another node committed is shown within one second. Errors: NotFound (either).
	Access(ctx context.Context, tenantID, keyID string) (Access, error)
	// Tenants lists tenants by id, after the given one. The operator's own is never among them. Errors: Malformed (see
	// CheckPlace). One that a newer build wrote is listed too: whoever asks it anything is answered why.
	Tenants(ctx context.Context, after string, limit int) ([]Listed, error)
	// Import appends a section that another store committed: rows, numbers, time and verdicts as they are, nothing
	// decided again. Its first row must follow the tenant's last, so that an import that broke off goes on where it
	// stopped; the section that creates the tenant comes first. Errors: Conflict (it does not follow).
	Import(ctx context.Context, tenantID string, s ledger.Section) error

	// Prune takes the usage rows of archived months away, all but adjusted ones, and returns how many left. A month
	// with rows that a follower has not come to stays. It may be stopped at any moment and repeated; commits and reads
	// go on beside it. report, unless nil, gets how far it has come.
	Prune(ctx context.Context, report func(done, total uint64)) (uint64, error)

	// Ready returns nil when a commit could succeed now, else why not. The context bounds how long it may take to find
	// out.
	Ready(ctx context.Context) error

	// Close commits what is under way, waits for the Views that are and releases everything. A View that is called from
	// then on is Unavailable.
	Close() error
}

// View reads one tenant's ledger. What it returns is the caller's own.
type View interface {
	// Now is the time that a rule would see.
	Now() calendar.Micros
	Head() ledger.Head
	// Horizon is where the ledger's past ends.
	Horizon() Horizon
	// Entity returns an entity as its last change left it. One that may be forgotten (see entity.Kind.Expires) may be
	// gone. Errors: NotFound.
	Entity(kind, id string) (entity.Entity, error)
	// EntityAt returns an entity as it was when the row of that number had been committed. Errors: NotFound.
	EntityAt(kind, id string, seq uint64) (entity.Entity, error)
	// Entities lists the entities of a kind by id. Errors: Malformed (see CheckPlace).
	Entities(kind string, p Page) ([]entity.Entity, error)
	// EntitiesBy lists the entities of a kind that have a term, by id. Errors: Malformed (see CheckPlace).
	EntitiesBy(kind string, t entity.Term, p Page) ([]entity.Entity, error)
	// MeterUsed reports whether a meter, named by its number, has events, which fixes most of it.
	MeterUsed(number uint32) (bool, error)
	// Event returns a kept event and the rows that correct it, in seq order. Errors: NotFound, Archived (its key is
	// still known).
	Event(k usage.Key) (ledger.Row, []ledger.Row, error)
	// Rows calls fn for the rows with numbers above after, in order, until fn returns false, the ledger ends, or the
	// scan has gone on long enough; it returns the number of the last row it has looked at and whether the ledger ended
	// there. The filter is a hint: fn may see rows that it does not name. Rows are valid during the call of fn only.
	// Errors: Archived (rows that the hint names have left).
	Rows(after uint64, hint RowHint, fn func(r *ledger.Row) bool) (last uint64, end bool, err error)
	// Sections calls fn for the sections from the one that holds row first, in order. Sections are valid during the
	// call only. Errors: Archived (rows of a section have left).
	Sections(first uint64, fn func(s *ledger.Section) error) error
	// Tree gives what the store has of the ledger's tree. Errors: Archived (leaves of rows that left with their tile).
	Tree() tree.Source
	// PrunedSections is Sections for those who can do with what is left of sections whose rows have left.
	PrunedSections(first uint64, fn func(s *ledger.Section) error) error
	// AuditEvents lists the changes that the query names, the newest first, without their states.
	AuditEvents(q AuditQuery) ([]ledger.Row, error)
	// Slice calls fn for the usage that the query names, piece by piece, in no particular order; every row of it is in
	// exactly one piece. Pieces are valid during the call of fn only. Errors: NotFound (no such meter), Archived, and
	// those of fn.
	Slice(q SliceQuery, fn func(*Slice) error) error
	// Hours calls fn for the usage that the query names, hour by hour and in no particular order, as it was added up
	// when rows were committed. It is that of the rows up to the one that it returns, which the view moves on to if it
	// is newer. Kept is false when the store does not keep what is asked
	// for: the caller folds what Slice gives. Errors: NotFound (no such meter), Archived, and those of fn.
	Hours(q HourQuery, fn func(*Hour) error) (upTo uint64, kept bool, err error)
	// Counter returns a counter; one without rows is new. The meter is its number.
	Counter(id usage.CounterID) (usage.Counter, error)
	// Counters calls fn for counters in the order (month, meter slug, customer), from the given place on, until fn
	// returns false. Errors: Malformed (see CheckPlace).
	Counters(from CounterPlace, fn func(p CounterPlace, c *usage.Counter) bool) error
	// Months lists the months that have counters, from the given one on.
	Months(from calendar.Month, limit int) ([]calendar.Month, error)
	// Tally returns what all customers used of a meter that adds up; one without rows is new. The meter is its number.
	// Errors: NotFound (no such meter).
	Tally(meter uint32, m calendar.Month) (usage.Tally, error)
}

// Tx is a View that can append. Reads see what was appended before in the same transaction.
type Tx interface {
	View
	// Append adds a row; its state takes effect with the commit. It returns the row's number. Errors: Unavailable (a
	// state that only a newer build knows), Moved.
	Append(c ledger.Change) (uint64, error)
}

// Access is who calls: a tenant and the API key that was used.
type Access struct {
	Tenant tenant.Tenant
	Key    tenant.APIKey
}

// Listed is a tenant of a list. Its entity is zero when a newer build wrote what this one cannot read.
type Listed struct {
	ID     string
	Entity entity.Entity
}

// Page is a part of a list in the order of ids.
type Page struct {
	After    string // the place to go on from; "" with Backward unset: the beginning
	Limit    int
	Backward bool // from the last to the first; After is then the place to go down from, "" the end
}

// RowHint says which rows a scan is for, so that a store can pass over the rest.
type RowHint struct {
	From, To calendar.Micros // event times, half open; zero: unbounded
	Adjusted bool            // only adjusted events
	Events   bool            // events are wanted
	Entries  bool            // entries are wanted
	Changes  bool            // changes are wanted
}
