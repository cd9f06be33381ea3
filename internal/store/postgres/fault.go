package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// Bounds of trying again. The sum of the pauses is about a third of a second: enough for a deadlock or a restarting
// pooler to pass, short enough that a caller learns soon that the database is away.
const (
	maxAttempts = 5
	firstPause  = 10 * time.Millisecond
	// retryAfter is when a caller should come back.
	retryAfter = time.Second
)

// kind says what a failure means for the transaction that met it.
type kind uint8

const (
	// lasting failures would happen again: a defect, a schema that is not ours, rows of a newer build, a login that is
	// refused.
	lasting kind = iota
	// passing failures ended the transaction before anything was committed; the next attempt may succeed.
	passing
)

// lost is a failure of the connection: refused, reset, timed out, or cut in the middle of an answer. Only the session
// makes it, out of what the driver says, so that nothing else is ever taken for a connection that failed.
type lost struct{ cause error }

func (e *lost) Error() string { return e.cause.Error() }
func (e *lost) Unwrap() error { return e.cause }

// driverFailed marks an error of the driver. What the server itself said about a statement is no failure of the
// connection.
func driverFailed(err error) error {
	var server *pgconn.PgError
	if err == nil || errors.As(err, &server) {
		return err
	}
	return &lost{err}
}

// serverFaults say what an error of the server means, by the beginning of its code, the longest first.
var serverFaults = [...]struct {
	code   string
	kind   kind
	cause  string // a metric's label
	detail string // for the caller
}{
	{"40001", passing, "serialization", "the database ended the transaction in favor of others, several times"},
	{"40P01", passing, "deadlock", "the database ended the transaction because of a deadlock, several times"},
	// What this node remembered was wrong; it has forgotten it by now.
	{"23505", passing, "stale_memory", "the database has a row already that this node took for new, several times"},
	{"55P03", passing, "lock_timeout", "another node holds the tenant's head for too long"},
	{"57014", passing, "statement_timeout", "the database is too slow: a statement was ended when its time was up"},
	{"25006", passing, "read_only", "the database is read-only: it is a replica, or failing over"},
	{"25P03", passing, "idle", "the database ended the transaction because this node was silent for too long"},
	{"53100", passing, "resources", "the disk of the database is full"},
	{"53300", passing, "resources",
		"the database has no connection left: raise max_connections, or lower max_conns of the nodes"},
	{"53", passing, "resources", "the database is short of memory, disk or connections"},
	{"57P", passing, "shutdown", "the database is starting or shutting down"},
	{"58", passing, "io", "the database reports an error of its own disk"},
	{"08", passing, "connection", "the connection to the database failed"},
	{"28", lasting, "login", "the database refuses the login of this node: check the user and password of its URL"},
	{"3D000", lasting, "login", "the database that the URL of this node names does not exist"},
	{"42501", lasting, "rights", "the database refuses this node a right that it needs: run `tallystick migrate`"},
	{"42P01", lasting, "schema", "a table is missing: the schema is of another version; run `tallystick migrate`"},
	{"42703", lasting, "schema", "a column is missing: the schema is of another version; run `tallystick migrate`"},
}

// faultOf is what the server's error means; ok is false for one that stands in no list: a defect of this build.
func faultOf(server *pgconn.PgError) (k kind, cause, detail string, ok bool) {
	for _, f := range &serverFaults {
		if strings.HasPrefix(server.Code, f.code) {
			return f.kind, f.cause, f.detail, true
		}
	}
	return lasting, "defect", "", false
}

// kindOf judges an error of a transaction.
func kindOf(err error) kind {
	var server *pgconn.PgError
	var link *lost
	switch {
	case errors.As(err, &server):
		k, _, _, _ := faultOf(server)
		return k
	case errors.As(err, &link):
		return passing
	}
	return lasting
}

// causeOf names what made a transaction fail, in few words: they are a label.
func causeOf(err error) string {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return "connection"
	}
	_, cause, _, _ := faultOf(server)
	return cause
}

// errDefect marks data that contradicts itself. Trying again would not help.
var errDefect = errors.New("the ledger's tables contradict one another: run `tallystick verify`")

// again runs fn until it succeeds, fails for good, or has failed often or for long enough. fn must leave nothing behind
// when it fails.
func (s *Store) again(ctx context.Context, fn func() error) error {
	pause, began := firstPause, time.Now()
	for attempt := 1; ; attempt++ {
		err := fn()
		if err == nil || kindOf(err) == lasting || attempt == maxAttempts || ctx.Err() != nil ||
			time.Since(began) >= s.options.StatementTimeout {
			return s.portError(ctx, err)
		}
		s.metrics.retries.WithLabelValues(causeOf(err)).Inc()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause + rand.N(pause)): //nolint:gosec // spreads attempts over time, guards nothing
		}
		pause *= 2
	}
}

// portError turns a failure into what the port says of it. The caller's own errors and coded ones stay as they are.
func (s *Store) portError(ctx context.Context, err error) error {
	var coded *problem.Error
	switch {
	case err == nil, errors.As(err, &coded):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	var server *pgconn.PgError
	var link *lost
	switch {
	case errors.As(err, &server):
		if _, _, detail, known := faultOf(server); known {
			return problem.Wrap(problem.Unavailable, err, "%s", detail).Retry(retryAfter)
		}
		return problem.Wrap(problem.Internal, err, "the database refused a statement of this build")
	case errors.As(err, &link):
		p := problem.Wrap(problem.Unavailable, err, "the database cannot be reached, or does not answer")
		return p.Retry(retryAfter)
	}
	return problem.Wrap(problem.Internal, err, "what the database holds cannot be read by this build")
}

// outOfTime says that the time which the store gave a transaction ran out: that is no end of the caller's own context.
func outOfTime(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	p := problem.Wrap(problem.Unavailable, err, "the database did not answer in time; sending the same again is safe")
	return p.Retry(retryAfter)
}
