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

// Bounds of trying again. The sum of the pauses is about a third of a second: enough for a deadlock or a restarting pooler to pass,
// short enough that a caller learns soon that the database is away.
const (
	maxAttempts = 5
	firstPause  = 10 * time.Millisecond
	// retryAfter is when a caller should come back.
	retryAfter = time.Second
)

// kind says what a failure means for the transaction that met it.
type kind uint8

const (
	// lasting failures would happen again: a defect, or a schema that is not ours.
	lasting kind = iota
	// passing failures ended the transaction before anything was committed; the next attempt may succeed.
	passing
	// away is passing, and the server or the way to it is gone.
	away
)

// kindOf judges an error of the driver.
func kindOf(err error) kind {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		var coded *problem.Error
		if errors.As(err, &coded) || errors.Is(err, errDefect) {
			return lasting
		}
		return away // the connection: refused, reset, timed out, or cut in the middle of an answer
	}
	switch {
	case server.Code == "40001" || server.Code == "40P01": // serialization failure, deadlock
		return passing
	case server.Code == "23505": // unique violation: what this node remembered was wrong; it has forgotten it by now
		return passing
	case server.Code == "55P03" || server.Code == "57014" || server.Code == "25006": // lock timeout, statement timeout, read-only server
		return away
	case strings.HasPrefix(server.Code, "08"), strings.HasPrefix(server.Code, "53"), strings.HasPrefix(server.Code, "57P"),
		strings.HasPrefix(server.Code, "58"), server.Code == "25P03": // connection, resources, shutdown, I/O, idle transaction ended
		return away
	}
	return lasting
}

// errDefect marks data that contradicts itself. Trying again would not help.
var errDefect = errors.New("the ledger's tables contradict one another: run `tallystick verify`")

// again runs fn until it succeeds, fails for good, or has failed often or for long enough. fn must leave nothing behind when it fails.
func (s *Store) again(ctx context.Context, fn func() error) error {
	pause, began := firstPause, time.Now()
	for attempt := 1; ; attempt++ {
		err := fn()
		if err == nil || kindOf(err) == lasting || attempt == maxAttempts || ctx.Err() != nil || time.Since(began) >= s.options.StatementTimeout {
			return s.told(ctx, err)
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

// told turns a failure into what the port says of it. The caller's own errors and coded ones stay as they are.
func (s *Store) told(ctx context.Context, err error) error {
	var coded *problem.Error
	switch {
	case err == nil, errors.As(err, &coded):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if kindOf(err) == lasting {
		return problem.Wrap(problem.Internal, err, "the database refused a statement of this build")
	}
	return problem.Wrap(problem.Unavailable, err, "the database cannot be reached, or is too slow").Retry(retryAfter)
}
