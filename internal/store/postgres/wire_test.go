package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/pgtest"
)

// amounts that have a digit in every place that a group of digits begins or ends.
var amounts = []string{"0", "1", "-1", "9", "10", "9999", "10000", "10001", "99990000", "100000000", "0.1", "0.0001",
	"0.00001", "0.00000001", "0.000000000001", "-0.000000000001", "1.5", "12345.678901", "10000.0001",
	"99999999999999999999999999.999999999999",
	"-99999999999999999999999999.999999999999", "20000000000000000000000000"}

// Given any amount, when it goes to the server and back, then both have read the same number.
func TestAmountsTravelExactly(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, pgtest.Shared(t).URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	check := func(t interface{ Fatalf(string, ...any) }, text string) {
		v, err := amount.Parse(text)
		if err != nil {
			t.Fatalf("parse %s: %v", text, err)
		}
		result := conn.PgConn().ExecParams(ctx,
			"SELECT $1::numeric(38,12)::text, $1::numeric(38,12), trim_scale($1::numeric)",
			[][]byte{appendNumeric(nil, v)}, nil, binaryFormat, binaryFormat).Read()
		if result.Err != nil {
			t.Fatalf("send %s: %v", text, result.Err)
		}
		row := result.Rows[0]
		if read, err := amount.Parse(string(row[0])); err != nil || read != v {
			t.Fatalf("the server read %s as %s", text, row[0])
		}
		for _, back := range row[1:] {
			if got, err := readNumeric(back); err != nil || got != v {
				t.Fatalf("%s came back as %s, %v", text, got, err)
			}
		}
	}
	for _, text := range amounts {
		check(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,12})?`).Draw(t, "amount"))
	})
}

// Given bytes that are no numeric of a ledger, when they are read, then that is an error and no number.
func TestBadNumericsAreRefused(t *testing.T) {
	for _, b := range [][]byte{nil, {0}, {0, 1, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0xc0, 0, 0, 0},
		{0, 1, 0, 20, 0, 0, 0, 0, 0, 1}, {0, 1, 0, 7, 0, 0, 0, 0, 0x27, 0x0f}} {
		if v, err := readNumeric(b); err == nil {
			t.Errorf("%x was read as %s", b, v)
		}
	}
}

// Given any month, when it is written as a date and read, then it is the same.
func TestMonthsTravelExactly(t *testing.T) {
	for _, m := range []string{"1970-01", "1999-12", "2000-01", "2026-11", "9999-12"} {
		want, err := calendar.ParseMonth(m)
		if err != nil {
			t.Fatal(err)
		}
		in := reader{values: [][]byte{monthParam(want)}}
		if got := in.month(); got != want || in.err != nil {
			t.Errorf("%s came back as %s, %v", want, got, in.err)
		}
	}
}
