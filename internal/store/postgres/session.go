package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// session is a connection that is lent to one transaction.
type session struct {
	lent  *pgxpool.Conn
	pg    *pgconn.PgConn
	grown func() bool
	// prepared are the statements that the server knows on this connection. A statement is prepared in the round trip
	// that first uses it.
	prepared map[*statement]*pgconn.StatementDescription
}

const preparedData = "tallystick.prepared"

// lend takes a connection from the pool, waiting for one if all are in use.
func (s *Store) lend(ctx context.Context) (*session, error) {
	lent, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("get a connection: %w", driverFailed(err))
	}
	pg := lent.Conn().PgConn()
	prepared, ok := pg.CustomData()[preparedData].(map[*statement]*pgconn.StatementDescription)
	if !ok {
		prepared = map[*statement]*pgconn.StatementDescription{}
		pg.CustomData()[preparedData] = prepared
	}
	return &session{lent, pg, s.grown.Load, prepared}, nil
}

// giveBack ends what is still open. The pool discards a connection whose transaction could not be ended.
func (c *session) giveBack(ctx context.Context) {
	if !c.pg.IsClosed() && c.inTransaction() {
		r := c.roundTrip(ctx)
		r.send(rollback, nil)
		_ = r.do() // the pool looks at the connection, not at this
	}
	c.lent.Release()
}

// inTransaction reports whether the server is inside a transaction, also a failed one.
func (c *session) inTransaction() bool { return c.pg.TxStatus() != 'I' }

// roundTrip is a number of statements that go to the server at once and are answered together.
type roundTrip struct {
	c     *session
	p     *pgconn.Pipeline
	calls []call
}

type call struct {
	statement *statement
	prepares  bool
	each      func(*reader) error
	then      func() // when it was answered
}

var binaryFormat = []int16{1}

func (c *session) roundTrip(ctx context.Context) *roundTrip {
	return &roundTrip{c: c, p: c.pg.StartPipeline(ctx)}
}

// send adds a statement. each is called for every row of its result and may be nil; what it is given is valid during
// the call.
func (r *roundTrip) send(st *statement, each func(*reader) error, params ...[]byte) {
	k := call{statement: st, each: each}
	if st.choosy && !r.c.grown() {
		r.p.SendQueryParams(st.sql, params, nil, binaryFormat, binaryFormat)
		r.calls = append(r.calls, k)
		return
	}
	if known := r.c.prepared[st]; known != nil {
		// Its columns are known: the server need not send them again.
		r.p.SendQueryStatement(known, params, binaryFormat, binaryFormat)
		r.calls = append(r.calls, k)
		return
	}
	if !r.isSent(st) {
		k.prepares = true
		r.p.SendPrepare(st.name, st.sql, nil)
	}
	r.p.SendQueryPrepared(st.name, params, binaryFormat, binaryFormat)
	r.calls = append(r.calls, k)
}

// then has fn called as soon as the server has done the statement that was sent last, and not when it has done all of
// the round trip.
func (r *roundTrip) then(fn func()) {
	r.p.SendFlushRequest()
	r.calls[len(r.calls)-1].then = fn
}

func (r *roundTrip) isSent(st *statement) bool {
	for i := range r.calls {
		if r.calls[i].statement == st && r.calls[i].prepares {
			return true
		}
	}
	return false
}

// flush sends what was added so far, so that the server can begin with it. Answers are read by do.
func (r *roundTrip) flush() { _ = r.p.Flush() } // do meets the same error

// do sends everything and reads the answers. The first error ends the round trip: the server has then skipped the rest
// of it.
func (r *roundTrip) do() error {
	err := driverFailed(r.p.Sync())
	for i := range r.calls {
		if err != nil {
			break
		}
		if err = r.read(&r.calls[i]); err != nil {
			err = fmt.Errorf("%s: %w", r.calls[i].statement.name, err)
		}
	}
	// Closing reads what is left; its error is the first one again, or says that the connection is gone.
	if closed := driverFailed(r.p.Close()); err == nil {
		err = closed
	}
	return err
}

func (r *roundTrip) read(k *call) error {
	if k.prepares {
		got, err := r.p.GetResults()
		if err != nil {
			return driverFailed(err)
		}
		known, ok := got.(*pgconn.StatementDescription)
		if !ok {
			return fmt.Errorf("an answer of type %T where a statement was expected", got)
		}
		known.Name = k.statement.name
		r.c.prepared[k.statement] = known
	}
	got, err := r.p.GetResults()
	if err != nil {
		return driverFailed(err)
	}
	rows, ok := got.(*pgconn.ResultReader)
	if !ok {
		return fmt.Errorf("an answer of type %T where rows were expected", got)
	}
	var failed error
	for rows.NextRow() {
		if k.each == nil || failed != nil {
			continue
		}
		in := reader{values: rows.Values()}
		if failed = k.each(&in); failed == nil {
			failed = in.err
		}
	}
	if _, err := rows.Close(); err != nil {
		return driverFailed(err)
	}
	if k.then != nil {
		k.then()
	}
	return failed
}

// ask runs one statement.
func (c *session) ask(ctx context.Context, st *statement, each func(*reader) error, params ...[]byte) error {
	r := c.roundTrip(ctx)
	r.send(st, each, params...)
	return r.do()
}

// A writer that has gone silent holds its tenant's head and is ended soon: that is the setting of every connection. A
// reader holds nothing, and may be waiting for a slow client of its own.
const (
	writerIdle = "10s"
	readerIdle = "10min"
)

// beginWriting adds the start of a transaction: the role that the walls hold for, and the tenant within them.
func (r *roundTrip) beginWriting(tenantID string) { r.begin(beginWrite, roleServe, tenantID) }

// beginReading adds the start of a transaction that sees one moment.
func (r *roundTrip) beginReading(role, tenantID string) {
	r.begin(beginRead, role, tenantID)
	r.send(idleAsReader, nil)
}

func (r *roundTrip) begin(transaction *statement, role, tenantID string) {
	r.send(transaction, nil)
	r.send(becomes[role], nil)
	r.nameTenant(tenantID)
}

// nameTenant sets the tenant that the walls let through, until the transaction ends. It is a statement of its own, with
// the name as a literal: a distributed PostgreSQL passes this on to where the rows are, and set_config it does not.
func (r *roundTrip) nameTenant(tenantID string) {
	r.p.SendQueryParams("SET LOCAL tallystick.tenant = "+literal(tenantID), nil, nil, nil, nil)
	r.calls = append(r.calls, call{statement: nameTenant})
}

// literal quotes text for SQL. Backslashes mean themselves: standard_conforming_strings is on, see guardSession.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
