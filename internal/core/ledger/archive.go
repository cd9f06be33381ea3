package ledger

import (
	"encoding/json"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Archive says that the usage rows of a month are in an archive, whole and read back, and may leave the ledger. It is
// recorded by a change row, which stands behind the rows of the Base of that month.
type Archive struct {
	Month       calendar.Month
	Rows        uint64 // usage rows of the month
	Stay        uint64 // of these, adjusted ones: they are adjustments of the bill and never leave
	First, Last uint64 // numbers of the first and the last row that leave; 0 when all stay
	End         uint64 // number of the last row of the month, one that stays included
	Manifest    string // its name in the archive
	Sum         [32]byte
	Seq         uint64 // the row that recorded it
	At          calendar.Micros
}

// Base is some counters of a month as they stand where its row is: what their rows added up to. Folding the ledger
// again starts from here for a month whose rows have left.
type Base struct {
	Month    calendar.Month
	Counters []BaseCounter
}

// BaseCounter is one counter of a Base.
type BaseCounter struct {
	Meter    uint32
	Customer string
	usage.Counter
}

// Floor is the time below which no fact is taken any more: of the deployment in the operator's ledger, else of the
// tenant.
type Floor struct{ At calendar.Micros }

// FloorKind is the floor: one entity, under the id tenant.Self.
var FloorKind = entity.Kind[Floor]{
	Name: "floor", Version: 1, Critical: true, Resident: true,
	ID:     func(*Floor) string { return tenant.Self },
	Encode: func(f *Floor) []byte { return entity.Shape(floorShape(*f)) },
	Decode: func(e *entity.Entity) (Floor, error) {
		var in floorShape
		err := json.Unmarshal(e.Data, &in)
		return Floor(in), err
	},
}

// ArchiveKind is archived months, by month.
var ArchiveKind = entity.Kind[Archive]{
	Name: "archive", Version: 1, Critical: true, Resident: true,
	ID: func(a *Archive) string { return a.Month.String() },
	Encode: func(a *Archive) []byte {
		return entity.Shape(archiveShape{a.Month, a.Rows, a.Stay, a.First, a.Last, a.End, a.Manifest, a.Sum[:]})
	},
	Decode: decodeArchive,
}

// BaseKind is the counters of a month that is archived, a part of them in each row. They are folded where the row
// stands.
var BaseKind = entity.Kind[Base]{
	Name: "base", Version: 1, Critical: true, Unkept: true,
	ID:     func(b *Base) string { return b.Month.String() },
	Encode: encodeBase,
	Decode: decodeBase,
}

// The shapes on disk.
type (
	floorShape struct {
		At calendar.Micros `json:"at"`
	}
	archiveShape struct {
		Month    calendar.Month `json:"month"`
		Rows     uint64         `json:"rows"`
		Stay     uint64         `json:"stay,omitempty"`
		First    uint64         `json:"first"`
		Last     uint64         `json:"last"`
		End      uint64         `json:"end"`
		Manifest string         `json:"manifest"`
		Sum      []byte         `json:"sha256"`
	}
	baseShape struct {
		Month    calendar.Month     `json:"month"`
		Counters []baseCounterShape `json:"counters"`
	}
	baseCounterShape struct {
		Meter      uint32           `json:"meter"`
		Customer   string           `json:"customer"`
		OnTime     foldShape        `json:"on_time"`
		All        *foldShape       `json:"all,omitempty"`
		Watermark  *calendar.Micros `json:"watermark,omitempty"`
		Generation uint32           `json:"generation,omitempty"`
		Manual     string           `json:"manual,omitempty"`
		Sealed     string           `json:"sealed,omitempty"`
		Alerted    uint16           `json:"alerted,omitempty"`
	}
	foldShape struct {
		Count    int64           `json:"count"`
		Sum      string          `json:"sum"`
		Min      string          `json:"min"`
		Max      string          `json:"max"`
		AtMin    int64           `json:"at_min"`
		AtMax    int64           `json:"at_max"`
		Last     string          `json:"last"`
		LastTime calendar.Micros `json:"last_time"`
		LastKey  string          `json:"last_key"`
		Members  int64           `json:"members,omitempty"`
	}
)

func decodeArchive(e *entity.Entity) (Archive, error) {
	var in archiveShape
	if err := json.Unmarshal(e.Data, &in); err != nil {
		return Archive{}, err
	}
	out := Archive{
		Month: in.Month, Rows: in.Rows, Stay: in.Stay, First: in.First, Last: in.Last, End: in.End,
		Manifest: in.Manifest, Seq: e.Seq, At: e.At,
	}
	if copy(out.Sum[:], in.Sum) != len(out.Sum) || len(in.Sum) != len(out.Sum) {
		return Archive{}, fmt.Errorf("its sum has %d bytes", len(in.Sum))
	}
	return out, nil
}

func encodeBase(b *Base) []byte {
	out := baseShape{Month: b.Month, Counters: make([]baseCounterShape, len(b.Counters))}
	for i := range b.Counters {
		c := &b.Counters[i]
		o := &out.Counters[i]
		*o = baseCounterShape{Meter: c.Meter, Customer: c.Customer, OnTime: encodeFold(&c.OnTime),
			Generation: c.Generation, Alerted: c.Alerted}
		if c.Late != nil {
			all := encodeFold(c.Late)
			o.All = &all
		}
		if c.Started {
			o.Watermark = &c.Watermark
		}
		if c.Adjusted {
			o.Manual = c.Manual.String()
		}
		if c.Sealed {
			o.Sealed = c.SealedAt.String()
		}
	}
	return entity.Shape(out)
}

func encodeFold(f *usage.Fold) foldShape {
	return foldShape{Count: f.Count, Sum: f.Sum.String(), Min: f.Min.String(), Max: f.Max.String(), AtMin: f.AtMin,
		AtMax: f.AtMax,
		Last:  f.Last.String(), LastTime: f.LastTime, LastKey: string(f.LastKey), Members: f.Members}
}

func decodeBase(e *entity.Entity) (Base, error) {
	var in baseShape
	if err := json.Unmarshal(e.Data, &in); err != nil {
		return Base{}, err
	}
	out := Base{Month: in.Month, Counters: make([]BaseCounter, len(in.Counters))}
	for i := range in.Counters {
		if err := in.Counters[i].read(&out.Counters[i]); err != nil {
			return Base{}, fmt.Errorf("one of its counters: %w", err)
		}
	}
	return out, nil
}

func (c *baseCounterShape) read(out *BaseCounter) (err error) {
	out.Meter, out.Customer, out.Generation, out.Alerted = c.Meter, c.Customer, c.Generation, c.Alerted
	if err = c.OnTime.read(&out.OnTime); err != nil {
		return err
	}
	if c.All != nil {
		out.Late = &usage.Fold{}
		if err = c.All.read(out.Late); err != nil {
			return err
		}
	}
	if out.Started = c.Watermark != nil; out.Started {
		out.Watermark = *c.Watermark
	}
	if out.Adjusted = c.Manual != ""; out.Adjusted {
		if out.Manual, err = amount.Parse(c.Manual); err != nil {
			return err
		}
	}
	if out.Sealed = c.Sealed != ""; out.Sealed {
		out.SealedAt, err = amount.Parse(c.Sealed)
	}
	return err
}

func (f *foldShape) read(out *usage.Fold) (err error) {
	*out = usage.Fold{Count: f.Count, AtMin: f.AtMin, AtMax: f.AtMax, LastTime: f.LastTime, Members: f.Members}
	if f.LastKey != "" {
		out.LastKey = []byte(f.LastKey)
	}
	for _, v := range [...]struct {
		text string
		to   *amount.Amount
	}{{f.Sum, &out.Sum}, {f.Min, &out.Min}, {f.Max, &out.Max}, {f.Last, &out.Last}} {
		if *v.to, err = amount.Parse(v.text); err != nil {
			return err
		}
	}
	return nil
}
