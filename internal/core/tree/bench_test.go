package tree_test

import (
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
)

const (
	sectionRows = 1000
	rowBytes    = 180
)

// section is a commit of usage rows, of rowBytes each in the canonical encoding.
func section(b *testing.B) []ledger.Row {
	b.Helper()
	rows := make([]ledger.Row, sectionRows)
	for i := range rows {
		rows[i] = ledger.Row{Seq: 1_000_001 + uint64(i), At: calendar.Micros(1_790_000_000_000_000), Event: &usage.Row{}}
		e := rows[i].Event
		e.Key = usage.Key{Space: usage.ClientSpace, Name: "0198c5a2-7d3e-7b11-9f0a-2c4d5e6f7a8b"}
		e.Meter, e.Customer, e.Time = "api_requests", "customer-00042", 1_790_000_000_000_000
		e.Quantity = amount.FromInt(1)
		e.Outcomes = []usage.Outcome{{Meter: 1, Value: amount.FromInt(1)}}
		missing := rowBytes - len(ledger.AppendCanonical(nil, &rows[i]))
		e.Resource = strings.Repeat("r", missing)
		if n := len(ledger.AppendCanonical(nil, &rows[i])); n != rowBytes {
			b.Fatalf("a row has %d bytes", n)
		}
	}
	return rows
}

func perRow(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/sectionRows, "ns/row")
}

// BenchmarkSection hashes a commit: with the chain, which the tree replaces, with the tree, and with the parts of the
// tree's work. Only "append" has an order; "leaves" can be shared out to several cores.
func BenchmarkSection(b *testing.B) {
	rows := section(b)
	keys, err := tree.NewKeys([]tree.Key{{FromSeq: 1, Secret: [32]byte{1}}})
	if err != nil {
		b.Fatal(err)
	}
	var hasher tree.Hasher
	var appender tree.Appender
	leaves, tiles := make([]tree.Hash, len(rows)), make([]tree.Tile, 0, 8)
	var canonical []byte
	hash := func() {
		for i := range rows {
			canonical = ledger.AppendCanonical(canonical[:0], &rows[i])
			leaves[i] = hasher.Leaf(keys, rows[i].Seq, canonical)
		}
	}
	hash()
	before := grown(1_000_000)

	b.Run("chain", func(b *testing.B) {
		var chain [32]byte
		var h ledger.Hasher
		b.ReportAllocs()
		for b.Loop() {
			chain = h.Next(chain, rows)
		}
		perRow(b)
	})
	b.Run("tree", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			hash()
			appender.Reset(before)
			tiles = appender.Append(leaves, tiles[:0])
			appender.Tree()
		}
		perRow(b)
	})
	b.Run("canonical", func(b *testing.B) {
		for b.Loop() {
			for i := range rows {
				canonical = ledger.AppendCanonical(canonical[:0], &rows[i])
			}
		}
		perRow(b)
	})
	b.Run("leaves", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for i := range rows {
				leaves[i] = hasher.Leaf(keys, rows[i].Seq, canonical)
			}
		}
		perRow(b)
	})
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			appender.Reset(before)
			tiles = appender.Append(leaves, tiles[:0])
			appender.Tree()
		}
		perRow(b)
	})
}

// BenchmarkOneRow appends a commit of one row, as small tenants do.
func BenchmarkOneRow(b *testing.B) {
	leaf, t := make([]tree.Hash, 1), grown(1000)
	var a tree.Appender
	b.ReportAllocs()
	for b.Loop() {
		a.Reset(t)
		a.Append(leaf, nil)
		t = a.Tree()
	}
}

func grown(rows int) tree.Tree {
	var a tree.Appender
	leaves := make([]tree.Hash, 1000)
	for range rows / len(leaves) {
		a.Append(leaves, nil)
	}
	return a.Tree()
}
