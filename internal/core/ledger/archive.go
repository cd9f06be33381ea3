package ledger

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Archive says that the usage rows of a month are in an archive, whole and read back, and may leave the ledger. It is told by a
// change row, which stands behind the rows of the Base of that month.
type Archive struct {
	Month       calendar.Month
	Rows        uint64 // usage rows of the month
	Stay        uint64 // of these, adjusted ones: they are adjustments of the bill and never leave
	First, Last uint64 // numbers of the first and the last row that leave; 0 when all stay
	End         uint64 // number of the last row of the month, one that stays included
	Manifest    string // its name in the archive
	Sum         [32]byte
	Seq         uint64 // the row that told it
	At          calendar.Micros
}

// Base is some counters of a month as they stand where its row is: what their rows added up to. Folding the ledger again starts
// from here for a month whose rows have left.
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

// HasRows reports whether the counter has ever folded a usage row.
func (c *BaseCounter) HasRows() bool { return c.Started || c.Late != nil || c.OnTime.Count > 0 }

type (
	floorJSON struct {
		At calendar.Micros `json:"at"`
	}
	archiveJSON struct {
		Month    calendar.Month `json:"month"`
		Rows     uint64         `json:"rows"`
		Stay     uint64         `json:"stay,omitempty"`
		First    uint64         `json:"first"`
		Last     uint64         `json:"last"`
		End      uint64         `json:"end"`
		Manifest string         `json:"manifest"`
		Sum      []byte         `json:"sha256"`
	}
	baseJSON struct {
		Month    calendar.Month    `json:"month"`
		Counters []baseCounterJSON `json:"counters"`
	}
	baseCounterJSON struct {
		Meter      uint32           `json:"meter"`
		Customer   string           `json:"customer"`
		OnTime     foldJSON         `json:"on_time"`
		All        *foldJSON        `json:"all,omitempty"`
		Watermark  *calendar.Micros `json:"watermark,omitempty"`
		Generation uint32           `json:"generation,omitempty"`
		Manual     string           `json:"manual,omitempty"`
		Sealed     string           `json:"sealed,omitempty"`
		Alerted    uint16           `json:"alerted,omitempty"`
	}
	foldJSON struct {
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

func encodeArchive(a *Archive) *archiveJSON {
	return &archiveJSON{a.Month, a.Rows, a.Stay, a.First, a.Last, a.End, a.Manifest, a.Sum[:]}
}

func (a *archiveJSON) state(r *Row) (State, error) {
	out := Archive{Month: a.Month, Rows: a.Rows, Stay: a.Stay, First: a.First, Last: a.Last, End: a.End, Manifest: a.Manifest, Seq: r.Seq, At: r.At}
	if copy(out.Sum[:], a.Sum) != len(out.Sum) {
		return State{}, fmt.Errorf("decode the archive of %s: its sum has %d bytes", a.Month, len(a.Sum))
	}
	return State{Archive: &out}, nil
}

func encodeBase(b *Base) *baseJSON {
	out := &baseJSON{Month: b.Month, Counters: make([]baseCounterJSON, len(b.Counters))}
	for i := range b.Counters {
		c := &b.Counters[i]
		o := &out.Counters[i]
		*o = baseCounterJSON{Meter: c.Meter, Customer: c.Customer, OnTime: encodeFold(&c.OnTime), Generation: c.Generation, Alerted: c.Alerted}
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
	return out
}

func encodeFold(f *usage.Fold) foldJSON {
	return foldJSON{Count: f.Count, Sum: f.Sum.String(), Min: f.Min.String(), Max: f.Max.String(), AtMin: f.AtMin, AtMax: f.AtMax,
		Last: f.Last.String(), LastTime: f.LastTime, LastKey: string(f.LastKey), Members: f.Members}
}

func (b *baseJSON) state() (State, error) {
	out := &Base{Month: b.Month, Counters: make([]BaseCounter, len(b.Counters))}
	for i := range b.Counters {
		if err := b.Counters[i].read(&out.Counters[i]); err != nil {
			return State{}, fmt.Errorf("decode a counter of the base of %s: %w", b.Month, err)
		}
	}
	return State{Base: out}, nil
}

func (c *baseCounterJSON) read(out *BaseCounter) (err error) {
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

func (f *foldJSON) read(out *usage.Fold) (err error) {
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
