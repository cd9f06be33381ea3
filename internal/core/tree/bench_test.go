package tree_test

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/sha256lanes"
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
		rows[i] = ledger.Row{Seq: 1_000_001 + uint64(i), At: calendar.Micros(1_790_000_000_000_000),
			Event: &usage.Row{}}
		e := rows[i].Event
		e.Key = usage.Key{Space: usage.ClientSpace, Name: "0198c5a2-7d3e-7b11-9f0a-2c4d5e6f7a8b"}
		e.Meter, e.Customer, e.Time = "api_requests", "customer-00042", 1_790_000_000_000_000
		e.Quantity = amount.FromInt(1)
		e.Outcomes = []usage.Outcome{{Meter: 1, Value: amount.FromInt(1)}}
		missing := rowBytes - len(ledger.AppendCanonical(nil, &rows[i], tree.Hash{}))
		e.Resource = strings.Repeat("r", missing)
		if n := len(ledger.AppendCanonical(nil, &rows[i], tree.Hash{})); n != rowBytes {
			b.Fatalf("a row has %d bytes", n)
		}
	}
	return rows
}

// BenchmarkSection hashes a commit: in one piece, as a chain of hashes would, with the tree, and with the parts of the
// tree's work. Only "append" has an order; "leaves" can be shared out to several cores. They run in turns, and the
// least time of each is reported: on a busy machine only that can be compared.
func BenchmarkSection(b *testing.B) {
	rows := section(b)
	keys, err := tree.NewKeys([]tree.Key{{FromSeq: 1, Secret: [32]byte{1}}})
	if err != nil {
		b.Fatal(err)
	}
	before := grown(1_000_000)
	leaves, tiles := make([]tree.Hash, len(rows)), make([]tree.Tile, 0, 8)
	encode, encoded := encoder(rows)

	chain := sha256.New()
	var single tree.Hasher
	names := []string{"chain", "canonical", "leaves/one-by-one"}
	parts := []func(){
		func() {
			encode()
			for i := range encoded {
				chain.Write(encoded[i])
			}
		},
		encode,
		func() {
			for i := range rows {
				leaves[i] = single.Leaf(keys, rows[i].Seq, encoded[i])
			}
		},
	}
	for _, kernel := range sha256lanes.Kernels() {
		var hasher tree.Hasher
		var appender tree.Appender
		hasher.Use(kernel)
		appender.Use(kernel)
		hash := func() { hasher.Leaves(keys, rows[0].Seq, encoded, leaves) }
		add := func() {
			appender.Reset(before)
			tiles = appender.Append(leaves, tiles[:0])
			appender.Tree()
		}
		names = append(names, "leaves/"+kernel.String(), "append/"+kernel.String(), "tree/"+kernel.String())
		parts = append(parts, hash, add, func() { encode(); hash(); add() })
	}
	least := make([]time.Duration, len(parts))
	for b.Loop() {
		for i := range parts {
			start := time.Now()
			parts[i]()
			if took := time.Since(start); least[i] == 0 || took < least[i] {
				least[i] = took
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of all together: says nothing
	for i, name := range names {
		b.ReportMetric(float64(least[i].Nanoseconds())/sectionRows, name+"-ns/row")
	}
}

// encoder encodes all rows into one buffer, and says where each is in it.
func encoder(rows []ledger.Row) (encode func(), encoded [][]byte) {
	encoded = make([][]byte, len(rows))
	buf := make([]byte, 0, sectionRows*rowBytes)
	encode = func() {
		buf = buf[:0]
		for i := range rows {
			at := len(buf)
			buf = ledger.AppendCanonical(buf, &rows[i], tree.Hash{})
			encoded[i] = buf[at:]
		}
	}
	encode()
	return encode, encoded
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
