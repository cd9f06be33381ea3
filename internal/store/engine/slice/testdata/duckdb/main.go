// Command duckdb runs one SQL query in DuckDB and prints its rows, columns separated by tabs. It is a reader of the
// engine's Parquet files that shares no code with what wrote them, and a module of its own, so that nothing else
// depends on DuckDB.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	_ "github.com/duckdb/duckdb-go/v2"
)

func main() {
	repeat := flag.Int("repeat", 0, "run the query that many times and print the seconds of each instead of its rows")
	flag.Parse()
	if err := run(context.Background(), flag.Arg(0), *repeat); err != nil {
		fmt.Fprintln(os.Stderr, "duckdb:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, query string, repeat int) error {
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if repeat == 0 {
		return each(ctx, db, query, func(line string) { fmt.Println(line) })
	}
	for range repeat {
		start := time.Now()
		if err := each(ctx, db, query, func(string) {}); err != nil {
			return err
		}
		fmt.Println(time.Since(start).Seconds())
	}
	return nil
}

// each calls fn with every row. Everything is read as text: a query casts what it wants exact.
func each(ctx context.Context, db *sql.DB, query string, fn func(line string)) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values, targets, texts := make([]any, len(columns)), make([]any, len(columns)), make([]string, len(columns))
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		for i, v := range values {
			texts[i] = fmt.Sprint(v)
		}
		fn(strings.Join(texts, "\t"))
	}
	return rows.Err()
}
