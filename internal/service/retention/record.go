package retention

import (
	"bytes"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tree"
)

// record is a usage row in an archive. Row is the row's canonical encoding, of which alone a row is restored; the
// columns beside it are for whoever looks into the file with other tools. A row also says which section it stood in.
type record struct {
	Seq          uint64         `parquet:"seq,delta"`
	ReceivedAt   int64          `parquet:"received_at,timestamp(microsecond),delta"`
	Time         int64          `parquet:"time,timestamp(microsecond)"`
	ID           string         `parquet:"id"`
	Status       string         `parquet:"status,dict"`
	Meter        string         `parquet:"meter,optional,dict"`
	Type         string         `parquet:"type,optional,dict"`
	Customer     string         `parquet:"customer,dict"`
	Resource     string         `parquet:"resource,optional,dict"`
	Quantity     amount.Decimal `parquet:"quantity,decimal(12:38)"`
	Properties   string         `parquet:"properties,optional"`
	Corrects     string         `parquet:"corrects,optional"`
	SectionFirst uint64         `parquet:"section_first,delta"`
	SectionRows  uint32         `parquet:"section_rows"`
	Row          []byte         `parquet:"row"`
}

func recordOf(r *ledger.Row, s *place) record {
	e := r.Event
	return record{
		Seq: r.Seq, ReceivedAt: int64(r.At), Time: int64(e.Time), ID: e.Key.ID(), Status: e.Status().String(),
		Meter: e.Meter, Type: e.Type,
		Customer: e.Customer, Resource: e.Resource, Quantity: e.Quantity.Decimal(), Properties: e.Properties,
		Corrects:     e.Corrects,
		SectionFirst: s.first, SectionRows: uint32(s.rows), Row: ledger.AppendCanonical(nil, r, tree.Hash{}),
	}
}

// row restores the row and holds the columns against it.
func (r *record) row() (ledger.Row, error) {
	out, err := ledger.DecodeCanonical(r.Row)
	if err != nil {
		return out, fmt.Errorf("row %d: %w", r.Seq, err)
	}
	again := recordOf(&out, &place{r.SectionFirst, int(r.SectionRows)})
	if !again.equal(r) || out.Seq < r.SectionFirst || out.Seq >= r.SectionFirst+uint64(r.SectionRows) {
		return out, fmt.Errorf("row %d: its columns contradict its encoding", r.Seq)
	}
	return out, nil
}

func (r *record) equal(o *record) bool {
	a, b := *r, *o
	a.Row, b.Row = nil, nil
	return fmt.Sprint(a) == fmt.Sprint(b) && bytes.Equal(r.Row, o.Row)
}

// place is the section that a row stood in.
type place struct {
	first uint64
	rows  int
}
