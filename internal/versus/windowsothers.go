package versus

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tallystick/tallystick/internal/versus/pgserver"
)

// postgres fills a table that anyone would make for this, with the index that helps, and asks it. It returns what ends
// it.
func (r *windowsRun) postgres(ctx context.Context, server *pgserver.Server) (a asker, end func() error, err error) {
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		return a, nil, err
	}
	end = func() error { return conn.Close(context.WithoutCancel(ctx)) }
	defer func() {
		if err != nil {
			err = errors.Join(err, end())
		}
	}()
	_, err = conn.Exec(ctx,
		`create table usage_rows (tenant text, meter text, customer text, time timestamptz, seq bigint, value `+
			`numeric(38,12), properties text)`)
	if err != nil {
		return a, nil, err
	}
	n := int64(0)
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"usage_rows"},
		[]string{"tenant", "meter", "customer", "time", "seq", "value", "properties"},
		pgx.CopyFromFunc(func() ([]any, error) {
			if n == r.options.Rows {
				return nil, nil
			}
			e := r.event(n, r.options.Rows)
			n++
			var value pgtype.Numeric
			if err := value.Scan(e.Quantity.String()); err != nil {
				return nil, err
			}
			return []any{askedTenant, askedMeter, e.Customer, e.Time.Time(), n, value, e.Properties}, nil
		}))
	if err != nil {
		return a, nil, fmt.Errorf("copy rows: %w", err)
	}
	for _, sql := range []string{
		`create index on usage_rows (tenant, meter, customer, time) include (value)`, `vacuum analyze usage_rows`,
		`set timezone = 'UTC'`, `set work_mem = '256MB'`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return a, nil, fmt.Errorf("%s: %w", sql, err)
		}
	}
	fmt.Fprintf(r.options.Progress, "%d rows in PostgreSQL %s\n", n, server.Version())
	return asker{askedPostgres, func(ctx context.Context) (time.Duration, time.Duration,
		error) {
		return r.askPostgres(ctx, conn)
	}}, end, nil
}

func (r *windowsRun) askPostgres(ctx context.Context, conn *pgx.Conn) (took, cpu time.Duration, err error) {
	start, used := time.Now(), familyCPU()
	rows, err := conn.Query(ctx, `select customer, date_trunc('hour', time) as hour, sum(value) from usage_rows
		where tenant = $1 and meter = $2 and time >= $3 and time < $4 group by customer, hour`,
		askedTenant, askedMeter, r.month.Start().Time(), r.month.End().Time())
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		if len(rows.RawValues()) != 3 {
			return 0, 0, errors.New("not what was asked for")
		}
	}
	return time.Since(start), familyCPU() - used, rows.Err()
}

// duckdb asks DuckDB over the engine's files, which lie in the page cache after the engine read them.
func (r *windowsRun) duckdb(dir string) asker {
	query := fmt.Sprintf(`select customer, epoch_us(time) // 3600000000 as hour, sum(value) from '%s'
		where tenant = '%s' and meter = '%s' and month = '%s' group by customer, hour`,
		slicesOf(dir), askedTenant, askedMeter, r.month)
	return asker{askedDuckDB, func(ctx context.Context) (took, cpu time.Duration, err error) {
		c := exec.CommandContext(ctx, r.options.DuckDB, "-repeat", "2", query)
		out, err := c.Output()
		if err != nil {
			return 0, 0, err
		}
		// The first run also opens the files.
		lines := strings.Fields(string(out))
		if len(lines) != 2 {
			return 0, 0, fmt.Errorf("said %q", out)
		}
		seconds, err := strconv.ParseFloat(lines[1], 64)
		return time.Duration(seconds * float64(time.Second)),
			(c.ProcessState.UserTime() + c.ProcessState.SystemTime()) / 2, err
	}}
}
