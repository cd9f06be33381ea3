package versus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick/tallystick/internal/load"
)

// plain is the schema of a guide that many handlers are written from: the primary key is the dedupe index, and one more
// index serves reads by time. It knows no customer, neither in rows nor in counters, which is less work than the engine
// does.
const plain = `
DROP TABLE IF EXISTS usage_events, usage_counters;
CREATE TABLE usage_events (
  tenant_id   uuid        NOT NULL,
  event_id    text        NOT NULL,
  meter       text        NOT NULL,
  quantity    numeric     NOT NULL CHECK (quantity >= 0),
  occurred_at timestamptz NOT NULL,
  ingested_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT usage_events_pk PRIMARY KEY (tenant_id, event_id)
);
CREATE INDEX idx_usage_events_tenant_time ON usage_events (tenant_id, occurred_at);
CREATE TABLE usage_counters (
  tenant_id uuid        NOT NULL,
  meter     text        NOT NULL,
  period    timestamptz NOT NULL,
  total     numeric     NOT NULL,
  PRIMARY KEY (tenant_id, meter, period)
);`

// byCustomer adds what a bill needs: whose the usage is, in every row and as the counters' key. It is the engine's
// work.
const byCustomer = plain + `
ALTER TABLE usage_events ADD customer text NOT NULL;
ALTER TABLE usage_counters ADD customer text NOT NULL, DROP CONSTRAINT usage_counters_pkey,
  ADD PRIMARY KEY (tenant_id, meter, customer, period);`

// pgSubject is an empty schema and connections to it.
type pgSubject struct {
	b    *bench
	pool *pgxpool.Pool
	// plain says that the schema knows no customers.
	plain bool
	ids   [][16]byte // of tenants
}

// adminDatabase is there in every new PostgreSQL.
const adminDatabase = "postgres"

// maxPool keeps a server of few cores from switching between more backends than help: beyond it the rate only falls.
const maxPool = 32

// openPg makes the schema anew. The checkpoint writes down what earlier cells left, so that this one does not pay for
// it.
func openPg(ctx context.Context, b *bench, schema string, connections int) (*pgSubject, error) {
	config, err := pgxpool.ParseConfig(b.cluster.URL(adminDatabase))
	if err != nil {
		return nil, fmt.Errorf("configure pool: %w", err)
	}
	config.MaxConns = int32(min(connections, maxPool))
	config.MinConns = config.MaxConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	s := &pgSubject{b: b, pool: pool, plain: schema == plain}
	for _, statement := range []string{schema, "CHECKPOINT"} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			pool.Close()
			return nil, fmt.Errorf("prepare tables: %w", err)
		}
	}
	for i := range b.w.Tenants() {
		s.ids = append(s.ids, [16]byte{0: 0x11, 15: byte(i)})
	}
	return s, nil
}

func (s *pgSubject) close() error {
	s.pool.Close()
	return nil
}

// check compares rows and counters with what was sent.
func (s *pgSubject) check(ctx context.Context, streams []*load.Stream, _ sample) error {
	for i, id := range s.ids {
		totals := s.b.w.Totals(i, streams)
		var rows int64
		if err := s.pool.QueryRow(ctx, "SELECT count(*) FROM usage_events WHERE tenant_id = $1",
			id).Scan(&rows); err != nil {
			return fmt.Errorf("count rows: %w", err)
		}
		if rows != totals.Events {
			return fmt.Errorf("tenant %d has %d rows, %d events were sent", i, rows, totals.Events)
		}
		for m, slug := range s.b.w.Meters() {
			var total int64
			err := s.pool.QueryRow(ctx, "SELECT coalesce(sum(total), 0)::bigint FROM usage_counters WHERE tenant_id "+
				"= $1 AND meter = $2", id, slug).Scan(&total)
			if err != nil {
				return fmt.Errorf("read counter: %w", err)
			}
			if want := totals.Sum(m); total != want {
				return fmt.Errorf("tenant %d, meter %s: total %d, sent %d", i, slug, total, want)
			}
		}
	}
	return nil
}

// pgTx is the guide's handler: begin, insert unless there, count if inserted, commit.
type pgTx struct{ *pgSubject }

func openPgTx(ctx context.Context, b *bench, c Cell) (subject, error) {
	s, err := openPg(ctx, b, plain, c.Submitters)
	return pgTx{s}, err
}

const (
	insertOne = `INSERT INTO usage_events (tenant_id, event_id, meter, quantity, occurred_at)
VALUES ($1,$2,$3,$4,$5)
ON CONFLICT (tenant_id, event_id) DO NOTHING
RETURNING event_id`
	countOne = `INSERT INTO usage_counters (tenant_id, meter, period, total)
VALUES ($1,$2,date_trunc('month',$3::timestamptz),$4)
ON CONFLICT (tenant_id, meter, period)
DO UPDATE SET total = usage_counters.total + EXCLUDED.total`
)

func (s pgTx) submitter(ctx context.Context) (func(*load.Batch) error, error) {
	return func(b *load.Batch) error {
		accepted := 0
		for i := range b.Facts {
			applied, err := s.ingest(ctx, s.ids[b.Tenant], &b.Facts[i])
			if err != nil {
				return err
			}
			if applied {
				accepted++
			}
		}
		return expect(b, accepted)
	}, nil
}

func (s pgTx) ingest(ctx context.Context, tenant [16]byte, f *load.Fact) (applied bool, err error) {
	meter, at := s.b.w.Meters()[f.Meter], s.b.w.Hour().Add(time.Duration(f.Offset)*time.Millisecond)
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var id string
		err := tx.QueryRow(ctx, insertOne, tenant, string(load.AppendID(nil, f)), meter, f.Quantity, at).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		applied = true
		_, err = tx.Exec(ctx, countOne, tenant, meter, at, f.Quantity)
		return err
	})
	return applied, err
}

// A set is one statement, and so one transaction and one round trip. Counters are taken in order, so that no two sets
// wait for one another.
const (
	insertSet = `WITH inserted AS (
  INSERT INTO usage_events (tenant_id, event_id, meter, customer, quantity, occurred_at)
  SELECT t, e, m, c, q, o
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::timestamptz[]) AS u (t, e, m, c, q, o)
  ON CONFLICT (tenant_id, event_id) DO NOTHING
  RETURNING tenant_id, event_id, meter, customer, quantity, occurred_at
), counted AS (
  INSERT INTO usage_counters (tenant_id, meter, customer, period, total)
  SELECT tenant_id, meter, customer, date_trunc('month', occurred_at), sum(quantity) FROM inserted
  GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
  ON CONFLICT (tenant_id, meter, customer, period) DO UPDATE SET total = usage_counters.total + EXCLUDED.total
)
SELECT tenant_id, event_id FROM inserted`
	insertPlainSet = `WITH inserted AS (
  INSERT INTO usage_events (tenant_id, event_id, meter, quantity, occurred_at)
  SELECT t, e, m, q, o
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::timestamptz[]) AS u (t, e, m, q, o)
  ON CONFLICT (tenant_id, event_id) DO NOTHING
  RETURNING tenant_id, event_id, meter, quantity, occurred_at
), counted AS (
  INSERT INTO usage_counters (tenant_id, meter, period, total)
  SELECT tenant_id, meter, date_trunc('month', occurred_at), sum(quantity) FROM inserted
  GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
  ON CONFLICT (tenant_id, meter, period) DO UPDATE SET total = usage_counters.total + EXCLUDED.total
)
SELECT tenant_id, event_id FROM inserted`
)

// columns are the arrays of one set.
type columns struct {
	tenants    [][16]byte
	ids        []string
	meters     []string
	customers  []string
	quantities []int64
	times      []time.Time
}

func (c *columns) reset() {
	*c = columns{c.tenants[:0], c.ids[:0], c.meters[:0], c.customers[:0], c.quantities[:0], c.times[:0]}
}

func (c *columns) add(w *load.Workload, tenant [16]byte, b *load.Batch) {
	for i := range b.Facts {
		f := &b.Facts[i]
		c.tenants = append(c.tenants, tenant)
		c.ids = append(c.ids, string(load.AppendID(nil, f)))
		c.meters = append(c.meters, w.Meters()[f.Meter])
		c.customers = append(c.customers, w.Customers()[f.Customer])
		c.quantities = append(c.quantities, f.Quantity)
		c.times = append(c.times, w.Hour().Add(time.Duration(f.Offset)*time.Millisecond))
	}
}

// insert returns the identities that were new.
func (s *pgSubject) insert(ctx context.Context, c *columns) ([]identity, error) {
	var rows pgx.Rows
	var err error
	if s.plain {
		rows, err = s.pool.Query(ctx, insertPlainSet, c.tenants, c.ids, c.meters, c.quantities, c.times)
	} else {
		rows, err = s.pool.Query(ctx, insertSet, c.tenants, c.ids, c.meters, c.customers, c.quantities, c.times)
	}
	if err != nil {
		return nil, fmt.Errorf("insert a set: %w", err)
	}
	inserted, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (id identity, err error) {
		err = r.Scan(&id.tenant, &id.event)
		return id, err
	})
	if err != nil {
		return nil, fmt.Errorf("insert a set: %w", err)
	}
	return inserted, nil
}

type identity struct {
	tenant [16]byte
	event  string
}

// pgSet runs one set per request.
type pgSet struct{ *pgSubject }

func openPgSet(ctx context.Context, b *bench, c Cell) (subject, error) {
	s, err := openPg(ctx, b, byCustomer, c.Submitters)
	return pgSet{s}, err
}

func (s pgSet) submitter(ctx context.Context) (func(*load.Batch) error, error) {
	var c columns
	return func(b *load.Batch) error {
		c.reset()
		c.add(s.b.w, s.ids[b.Tenant], b)
		inserted, err := s.insert(ctx, &c)
		if err != nil {
			return err
		}
		return expect(b, len(inserted))
	}, nil
}
