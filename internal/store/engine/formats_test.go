package engine_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/big"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"

	"github.com/tallystick/tallystick/internal/core/account"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// This file is a reader of the data directory that was written from docs/formats.md alone. It shares no code with the
// engine: when the two disagree, a format changed and the page did not, or the page is wrong.

var pageCRC = crc32.MakeTable(crc32.Castagnoli)

// page is a data directory as the page describes it.
type page struct {
	t        testing.TB
	dir      string
	id       [16]byte
	end      [2]uint32 // position after the last record
	sections []pageSection
	amounts  map[string][]byte // the encodings that were met, by decimal text
}

type pageSection struct {
	tenant uint32
	first  uint64
	at     int64
	rows   []pageRow
	links  []uint64
}

// pageRow is a row in plain words. Amounts are decimal text.
type pageRow struct {
	Seq                                      uint64
	At                                       int64
	By                                       string
	Entry                                    []string // every field, numbers as text
	Change                                   []string // a state is five of them: kind, id, version, flags, data
	Given                                    byte
	Space                                    byte
	Key, ID, Meter, Type, Customer, Resource string
	Time                                     int64
	Quantity, Properties, Corrects, Reason   string
	Outcomes                                 []pageOutcome
}

type pageOutcome struct {
	Meter                       uint32
	Why                         byte
	Overage                     bool
	Value, Base, Member, Amount string
}

// A store with every kind of row, written by the engine and read by the page, says the same to both.
func TestFormatsPageReadsAStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	clock := storetest.NewClock()
	open := func() *engine.Engine {
		e, err := engine.Open(engine.Options{Dir: dir, Now: clock.Now, SegmentBytes: 64 << 10, IndexEntries: 128,
			CheckpointBytes: 4 << 10})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := open()
	fill(t, e, clock)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	p := &page{t: t, dir: dir, amounts: map[string][]byte{"0": {0}, "1": {1}}}
	p.readStore()
	p.readJournal()
	p.readKeys()
	if p.end[0] < 2 {
		t.Errorf("the journal has %d segment: too few to be sure that the page describes how they follow one another",
			p.end[0])
	}
	e = open()
	defer func() { p.must(e.Close() == nil, "the store does not close") }()
	for i, id := range []string{"acme", "globex"} {
		p.compare(e, id, uint32(i+1))
	}
}

// fill gives two tenants facts of all kinds, some at once.
func fill(t testing.TB, e *engine.Engine, clock *storetest.Clock) {
	peak, people, derived := storetest.NewMeter("peak", meter.Max), storetest.NewMeter("people", meter.Unique),
		storetest.NewMeter("derived", meter.Sum)
	peak.EventType, peak.ValueProperty = "call", "v"
	people.EventType, people.UniqueProperty = "call", "u"
	derived.KeyPolicy = meter.DerivedKey
	tenants := []string{"acme", "globex"}
	record := func(id string, events ...usage.Event) {
		by := fmt.Sprint(id, ".k", len(events)%3)
		if _, err := e.Record(context.Background(), store.Batch{Tenant: id, By: by, Events: events}); err != nil {
			t.Error(err)
		}
	}
	change := func(id string, fn func(tx store.Tx) error) {
		if err := e.Update(context.Background(), id, fn); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range tenants {
		if err := storetest.Create(e, id, storetest.NewMeter("sum", meter.Sum), peak, people, derived); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 30 {
		var all sync.WaitGroup
		for _, id := range tenants {
			all.Go(func() {
				name, at := fmt.Sprintf("%s-%d", id, round), storetest.Ago(time.Duration(round)*4*time.Hour)
				pad := storetest.Text("pad", strings.Repeat("x", 50*round))
				record(id,
					storetest.Fact(name+"-long", "sum", "c1", at, "1"),
					storetest.Fact(name, "sum", "c1", at, fmt.Sprint(round, ".125")),
					storetest.On(storetest.With(storetest.Fact(name+"/r", "sum", "c2", at, "16511"), pad), "gpu"),
					storetest.Untimed(storetest.Fact(name+"?", "sum", "é", 0, "16512")),
					storetest.Call(name+"-call", "call", "c1", at, storetest.Number("v", fmt.Sprint(round*200)),
						storetest.Text("u", fmt.Sprint("who", round%3))),
					storetest.Fact("", "derived", "c1", at, "3"),
					storetest.Fact("known", "derived", "c3", at, "0.000000000001"))
				record(id, storetest.Correction(name+"-fix", name, "0.5"),
					storetest.OfMeter(storetest.Correction(name+"-fix2", name+"-call", "1"), "peak"),
					storetest.Correction(name+"-fix3", name+"-long", "-1"))
			})
		}
		all.Wait()
		clock.Advance(time.Second)
	}
	for _, id := range tenants {
		var made string
		change(id, func(tx store.Tx) (err error) {
			made, err = storetest.Adjust(tx, "sum", "new", storetest.Month, "-2.5", "")
			return err
		})
		change(id, func(tx store.Tx) error {
			_, err := storetest.Adjust(tx, "sum", "new", storetest.Month, "2.5", made)
			return err
		})
		change(id, func(tx store.Tx) error { return storetest.ClosePeriod(tx, storetest.Month) })
		record(id, storetest.Fact("closed", "sum", "c1", storetest.Ago(0), "7"),
			storetest.Correction("closed-fix", "closed", "-7"))
		importEntries(t, e, id)
	}
}

// importEntries adds entries, as another store may have them.
func importEntries(t testing.TB, e *engine.Engine, id string) {
	var s ledger.Section
	err := e.View(context.Background(), id, func(v store.View) error {
		s.First, s.At = v.Head().Seq+1, v.Head().Clock
		return nil
	})
	full := account.Row{Entry: account.Entry{ID: "E1", Account: "A", Type: account.Debit,
		Amount: storetest.Amount("5.5"), Time: s.At - 9,
		Given: account.GivenTime | account.GivenSequence, Sequence: 1 << 40, Counter: "B", Transfer: "T", Hold: "H",
		Expires:  s.At + 9,
		Corrects: "E0", Reason: "wrong", Metadata: `{"a":1}`}, System: true, Gap: true, Version: 7,
		Balance: storetest.Amount("-12.25"), Held: storetest.Amount("3")}
	least := account.Row{Entry: account.Entry{ID: "E2", Account: "A", Type: account.Credit,
		Amount: storetest.Amount("1"), Time: s.At}, Late: true}
	for i, r := range []*account.Row{&full, &least} {
		s.Rows = append(s.Rows, ledger.Row{Seq: s.First + uint64(i), At: s.At, By: fmt.Sprint("bank", i), Entry: r})
	}
	if err == nil {
		err = e.Import(context.Background(), id, s)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p *page) file(parts ...string) []byte {
	b, err := os.ReadFile(filepath.Join(append([]string{p.dir}, parts...)...))
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

func (p *page) must(ok bool, format string, args ...any) {
	p.t.Helper()
	if !ok {
		p.t.Fatalf(format, args...)
	}
}

func (p *page) readStore() {
	b := p.file("STORE")
	p.must(len(b) == 62 && string(b[:20]) == "tallystick store v1 " && b[61] == '\n', "STORE is %q", b)
	_, err := hex.Decode(p.id[:], b[20:52])
	p.must(err == nil && string(b[52:61]) == fmt.Sprintf(" %08x", crc32.Checksum(b[:52], pageCRC)), "STORE is %q", b)
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

func (p *page) readJournal() {
	slugs := map[uint32]map[uint32]string{}
	for n := uint32(1); ; n++ {
		name := fmt.Sprintf("%010d.journal", n)
		if _, err := os.Stat(filepath.Join(p.dir, "journal", name)); err != nil {
			break
		}
		b := p.file("journal", name)
		if allZero(b) { // prepared, holds nothing
			continue
		}
		le := binary.LittleEndian
		p.must(string(b[:8]) == "TALLYJNL" && le.Uint32(b[8:]) == 1 && le.Uint32(b[12:]) == n &&
			[16]byte(b[16:32]) == p.id, "%s: header", name)
		p.must(int(le.Uint32(b[32:])) == len(b) && le.Uint32(b[60:]) == crc32.Checksum(b[:60], pageCRC) &&
			allZero(b[64:4096]), "%s: header", name)
		p.must(n == 1 && le.Uint32(b[36:]) == 0 || n > 1 && le.Uint32(b[36:]) == p.end[1],
			"%s: end of the segment before", name)
		at := uint32(4096)
		for int(at)+12 <= len(b) && le.Uint32(b[at:]) != 0 {
			size := le.Uint32(b[at:])
			place := le.AppendUint32(le.AppendUint32(le.AppendUint32(p.id[:len(p.id):len(p.id)], n), at), size)
			check := crc32.Checksum(place, pageCRC)
			payload := b[at+12 : at+12+size]
			p.must(le.Uint32(b[at+4:]) == check && le.Uint32(b[at+8:]) == crc32.Update(check, pageCRC, payload),
				"%s: record at %d", name, at)
			p.readGroup(payload, slugs)
			at += 12 + size
		}
		p.must(allZero(b[at:]), "%s: not zero after %d", name, at)
		p.end = [2]uint32{n, at}
	}
}

func (p *page) readGroup(payload []byte, slugs map[uint32]map[uint32]string) {
	p.must(payload[0] == 5, "group version %d", payload[0])
	for at := 1; at < len(payload); {
		size := int(binary.LittleEndian.Uint32(payload[at:]))
		c := &cursor{p: p, b: payload[at+4 : at+4+size]}
		s := pageSection{tenant: uint32(c.uvarint()), first: c.uvarint(), at: c.varint()}
		if slugs[s.tenant] == nil {
			slugs[s.tenant] = map[uint32]string{}
		}
		key, last := "", s.at
		rows := c.uvarint()
		by := c.runs(rows)
		for i := range rows {
			r := pageRow{Seq: s.first + i, At: s.at, By: by[i]}
			c.row(&r, &s, key, last, slugs[s.tenant])
			if r.Change == nil && r.Entry == nil {
				key, last = r.Key, r.Time
			}
			s.rows = append(s.rows, r)
		}
		p.must(rows > 0 && len(c.b) == 0, "section of tenant %d from %d: %d rows, %d bytes left over", s.tenant,
			s.first, rows, len(c.b))
		p.sections = append(p.sections, s)
		at += 4 + size
	}
}

// runs reads who brought each row of a section.
func (c *cursor) runs(rows uint64) (by []string) {
	for left := c.uvarint(); left > 0; left-- {
		s, n := c.string(), rows-uint64(len(by))
		if left > 1 {
			n = c.uvarint()
		}
		for range n {
			by = append(by, s)
		}
	}
	c.p.must(uint64(len(by)) == rows, "%d rows, and %d that somebody brought", rows, len(by))
	return by
}

func (c *cursor) entry(at int64) []string {
	out := []string{string(c.take(3))}
	for range 8 {
		out = append(out, c.string())
	}
	out = append(out, c.amount(), fmt.Sprint(at+c.varint()), fmt.Sprint(c.uvarint()), fmt.Sprint(c.varint()),
		fmt.Sprint(c.uvarint()))
	return append(out, c.amount(), c.amount())
}

// cursor takes bytes apart.
type cursor struct {
	p        *page
	b        []byte
	literals []string
}

func (c *cursor) take(n uint64) []byte {
	c.p.must(n <= uint64(len(c.b)), "%d bytes wanted, %d left", n, len(c.b))
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) byte() byte { return c.take(1)[0] }

func (c *cursor) big() *big.Int {
	n := new(big.Int)
	for shift := uint(0); ; shift += 7 {
		x := c.byte()
		n.Or(n, new(big.Int).Lsh(big.NewInt(int64(x&0x7f)), shift))
		if x < 0x80 {
			return n
		}
	}
}

func (c *cursor) uvarint() uint64 { return c.big().Uint64() }

func (c *cursor) varint() int64 {
	u := c.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// amount returns decimal text and remembers its encoding, of which every value has one.
func (c *cursor) amount() string {
	before := c.b
	text := c.decimal()
	encoded := before[:len(before)-len(c.b)]
	known := c.p.amounts[text]
	c.p.must(known == nil || bytes.Equal(known, encoded), "%s is encoded as %x and as %x", text, known, encoded)
	c.p.amounts[text] = encoded
	return text
}

func (c *cursor) decimal() string {
	tag := c.byte()
	switch {
	case tag < 0x80:
		return fmt.Sprint(tag)
	case tag < 0xc0:
		return fmt.Sprint(128 + int(tag&0x3f)<<8 + int(c.byte()))
	}
	c.p.must(tag < 0xe0 && tag&0xf <= 12, "first byte of an amount is %#x", tag)
	text, scale := c.big().String(), int(tag&0xf)
	if scale > 0 {
		text = strings.Repeat("0", max(0, scale+1-len(text))) + text
		text = text[:len(text)-scale] + "." + text[len(text)-scale:]
	}
	if tag&0x10 != 0 {
		return "-" + text
	}
	return text
}

func (c *cursor) string() string {
	ref := c.uvarint()
	if ref == 0 {
		c.literals = append(c.literals, string(c.take(c.uvarint())))
		ref = uint64(len(c.literals))
	}
	c.p.must(ref <= uint64(len(c.literals)), "string %d of %d", ref, len(c.literals))
	return c.literals[ref-1]
}

func (c *cursor) row(r *pageRow, s *pageSection, key string, last int64, slugs map[uint32]string) {
	flags := c.byte()
	if flags == 0x03 {
		r.Entry = c.entry(s.at)
		return
	}
	if flags&0x01 != 0 {
		c.p.must(flags == 0x01, "first byte of row %d is %#x", r.Seq, flags)
		for range 7 {
			r.Change = append(r.Change, c.string())
		}
		if r.Change[6] == "" {
			return
		}
		r.Change = append(r.Change, c.string(), string(c.take(1)), string(c.take(1)), c.string())
		var state struct {
			Number uint32
			Slug   string
		}
		c.p.must(json.Unmarshal([]byte(r.Change[10]), &state) == nil, "state of row %d: %s", r.Seq, r.Change[10])
		if r.Change[6] == "meter" {
			slugs[state.Number] = state.Slug
		}
		return
	}
	r.Given, r.Space = c.byte(), 'c'
	if flags&0x02 != 0 {
		r.Space, r.Key = 'd', base64.RawURLEncoding.EncodeToString(c.take(32))
		r.ID = c.string()
	} else {
		shared, rest := c.byte(), c.byte()
		r.Key = key[:shared] + string(c.take(uint64(rest)))
		r.ID = r.Key
	}
	if flags&0x04 != 0 {
		r.Type = c.string()
	}
	r.Customer = c.string()
	if flags&0x08 != 0 {
		r.Resource = c.string()
	}
	r.Time, r.Quantity = last+c.varint(), "1"
	if flags&0x40 == 0 {
		r.Quantity = c.amount()
	}
	if flags&0x10 != 0 {
		r.Properties = c.string()
	}
	if flags&0x20 != 0 {
		r.Corrects, r.Reason = c.string(), c.string()
	}
	if flags&0x80 != 0 {
		r.Outcomes = []pageOutcome{{Meter: uint32(c.uvarint()), Value: r.Quantity, Base: "0", Amount: "0"}}
		s.links = append(s.links, c.uvarint())
	} else {
		for range c.uvarint() {
			r.Outcomes = append(r.Outcomes, c.outcome(r))
			s.links = append(s.links, c.uvarint())
		}
	}
	if flags&0x04 == 0 || flags&0x20 != 0 {
		r.Meter = slugs[r.Outcomes[0].Meter]
	}
}

func (c *cursor) outcome(r *pageRow) pageOutcome {
	flags := c.byte()
	o := pageOutcome{Meter: uint32(c.uvarint()), Why: flags & 7, Overage: flags&0x08 != 0, Value: r.Quantity, Base: "0",
		Amount: "0"}
	if flags&0x10 == 0 {
		o.Value = c.amount()
	}
	if r.Corrects != "" {
		o.Base = c.amount()
	}
	if flags&0x20 != 0 {
		o.Member = c.string()
	}
	if o.Why != 0 {
		o.Amount = c.amount()
	}
	return o
}

// readKeys holds the key index against the rows: every event has its key in one run, and no other key is there.
func (p *page) readKeys() {
	le, m := binary.LittleEndian, p.file("keys", "MANIFEST")
	runs := int(le.Uint32(m[56:]))
	p.must(string(m[:8]) == "tallykey" && le.Uint32(m[8:]) == 1 && [16]byte(m[16:32]) == p.id && len(m) == 64+32*runs,
		"MANIFEST")
	p.must(le.Uint32(m[60+32*runs:]) == crc32.Checksum(m[:60+32*runs], pageCRC), "MANIFEST: check")
	p.must(le.Uint32(m[48:]) == p.end[0] && le.Uint32(m[52:]) == p.end[1], "MANIFEST: mark, the journal ends at %v",
		p.end)
	partitions, seed, keys := le.Uint32(m[12:]), le.Uint64(m[32:]), map[[2]uint64][2]uint64{}
	for i := range runs {
		r := m[60+32*i:]
		number, width, entries := le.Uint64(r), le.Uint32(r[16:]), le.Uint64(r[20:])
		p.must(number < le.Uint64(m[40:]), "run %d is not below the next number", number)
		b := p.file("keys", fmt.Sprintf("%016x.run", number))
		foot, blocks := b[len(b)-80:], int(entries+156)/157
		lines := le.Uint64(foot[60:])
		filter := b[4096*blocks:][:64*lines]
		fence := b[4096*blocks+len(filter):][:8*blocks]
		p.must(string(foot[:8]) == "tallyrun" && le.Uint32(foot[8:]) == 1 && [16]byte(foot[16:32]) == p.id &&
			le.Uint64(foot[32:]) == number, "run %d: footer", number)
		p.must(bytes.Equal(foot[12:16], r[8:12]) && le.Uint32(foot[40:]) == partitions &&
			bytes.Equal(foot[44:60], r[12:28]), "run %d: footer", number)
		p.must(le.Uint32(foot[76:]) == crc32.Checksum(foot[:76], pageCRC) && bytes.Equal(foot[76:], r[28:32]),
			"run %d: check of the footer", number)
		p.must(le.Uint32(foot[68:]) == crc32.Checksum(filter, pageCRC) &&
			le.Uint32(foot[72:]) == crc32.Checksum(fence, pageCRC), "run %d: checks", number)
		p.must(len(b) == 4096*blocks+len(filter)+len(fence)+80, "run %d: length", number)
		for n := range int(entries) {
			block := b[4096*(n/157):][:4096]
			from := uint32(number)*0x9e3779b1 ^ uint32(number>>32) ^ uint32(n/157)
			p.must(le.Uint32(block[4092:]) == crc32.Update(from, pageCRC, block[:4092]), "run %d: block %d", number,
				n/157)
			entry := block[26*(n%157):][:26]
			hi, lo := le.Uint64(entry), le.Uint64(entry[8:])
			p.must(n%157 != 0 || le.Uint64(fence[8*(n/157):]) == hi, "run %d: fence", number)
			line, _ := bits.Mul64(hi<<bits.TrailingZeros32(partitions/width), lines)
			for word := range 8 {
				p.must(le.Uint64(filter[64*int(line)+8*word:])>>(lo>>(6*word)%64)&1 == 1,
					"run %d: key %d is not in the filter", number, n)
			}
			keys[[2]uint64{hi, lo}] = [2]uint64{uint64(le.Uint32(entry[16:])), le.Uint64(append(entry[20:26:26], 0, 0))}
		}
	}
	for _, s := range p.sections {
		for i := range s.rows {
			if r := &s.rows[i]; r.Change == nil && r.Entry == nil {
				hash := xxh3.Hash128Seed(append(le.AppendUint32(nil, s.tenant), string(r.Space)+r.Key...), seed)
				want, at := [2]uint64{xxh3.HashSeed(p.content(r), seed) & 0xffffffff, r.Seq},
					[2]uint64{hash.Hi, hash.Lo}
				p.must(keys[at] == want, "key %q of tenant %d: check and seq %d, want %d", r.Key, s.tenant, keys[at],
					want)
				delete(keys, at)
			}
		}
	}
	p.must(len(keys) == 0, "%d keys belong to no row", len(keys))
}

// content is what the content check is taken of.
func (p *page) content(r *pageRow) []byte {
	b := []byte{1}
	for i, f := range []struct {
		stated bool
		text   string
	}{{r.Space == 'c', r.ID}, {r.Given&0x04 != 0, r.Meter}, {r.Given&0x08 != 0, r.Type},
		{r.Given&0x10 != 0, r.Customer}, {r.Given&0x20 != 0, r.Resource}} {
		if f.stated {
			b = appendText(append(b, byte(i+1)), f.text)
		}
	}
	if r.Given&0x01 != 0 {
		b = binary.AppendVarint(append(b, 6), r.Time)
	}
	b = append(append(b, 7), p.amounts[r.Quantity]...)
	if r.Properties != "" {
		b = appendText(append(b, 8), r.Properties)
	}
	if r.Corrects != "" {
		b = appendText(append(appendText(append(b, 9), r.Corrects), 10), r.Reason)
	}
	return b
}

// compare holds a tenant's sections against what the engine shows.
func (p *page) compare(e *engine.Engine, id string, number uint32) {
	var want, got []pageRow
	var leaves [][]byte
	var key cipher.Block
	touched := map[string]uint64{} // counter → first seq of the section that last touched it
	kinds := map[string]int{}
	for _, s := range p.sections {
		if s.tenant != number {
			continue
		}
		p.must(s.first == uint64(len(want))+1, "tenant %s: section from %d after row %d", id, s.first, len(want))
		p.checkLinks(&s, touched)
		for i := range s.rows {
			if key == nil {
				key = p.treeKey(&s.rows[i])
			}
			leaves = append(leaves, p.leaf(key, &s.rows[i]))
			kinds[kindOf(&s.rows[i])]++
		}
		want = append(want, s.rows...)
	}
	for _, kind := range []string{"change", "event", "typed", "derived", "correction", "late", "closed", "entry"} {
		if kinds[kind] == 0 {
			p.t.Errorf("tenant %s has no row of kind %q: the comparison says nothing of it", id, kind)
		}
	}
	err := e.View(context.Background(), id, func(v store.View) error {
		_, _, err := v.Rows(0, store.RowHint{Events: true, Changes: true, Entries: true}, func(r *ledger.Row) bool {
			got = append(got, plain(r))
			return true
		})
		if root := v.Head().Tree.Root(); !bytes.Equal(root[:], merkle(leaves)) {
			p.t.Errorf("tenant %s: the page's root is %x, the engine's %x", id, merkle(leaves), root)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.must(cmp.Equal(got, want), "tenant %s (-engine +page):\n%.4000s", id, cmp.Diff(got, want))
}

func kindOf(r *pageRow) string {
	switch {
	case r.Change != nil:
		return "change"
	case r.Entry != nil:
		return "entry"
	case r.Outcomes[0].Why != 0:
		return [...]string{1: "late", 2: "closed", 3: "of a late one"}[r.Outcomes[0].Why]
	case r.Corrects != "":
		return "correction"
	case r.Space == 'd':
		return "derived"
	case r.Type != "":
		return "typed"
	}
	return "event"
}

func (p *page) checkLinks(s *pageSection, touched map[string]uint64) {
	links := s.links
	for i := range s.rows {
		for _, o := range s.rows[i].Outcomes {
			counter := fmt.Sprint(o.Meter, time.UnixMicro(s.rows[i].Time).UTC().Format(" 2006-01 "), s.rows[i].Customer)
			want := uint64(1)
			if earlier := touched[counter]; earlier == s.first {
				want = 0
			} else if earlier != 0 {
				want += s.first - earlier
			}
			p.must(links[0] == want, "tenant %d, row %d: link %d, want %d", s.tenant, s.rows[i].Seq, links[0], want)
			links, touched[counter] = links[1:], s.first
		}
	}
}

// plain says a row of the engine in the page's words.
func plain(r *ledger.Row) pageRow {
	out := pageRow{Seq: r.Seq, At: int64(r.At), By: strings.Clone(r.By)}
	if e := r.Entry; e != nil {
		out.Entry = plainEntry(e)
		return out
	}
	if c := r.Change; c != nil {
		for _, s := range []string{c.Type, c.Source, c.Actor, c.EntityType, c.EntityID, c.Payload, c.State.Kind} {
			out.Change = append(out.Change, strings.Clone(s))
		}
		if c.State.Kind != "" {
			critical := "\x00"
			if c.State.Critical {
				critical = "\x01"
			}
			out.Change = append(out.Change, strings.Clone(c.State.ID), string([]byte{c.State.Version}), critical,
				string(c.State.Data))
		}
		return out
	}
	v := r.Event
	out.Given, out.Space, out.Time, out.Quantity = byte(v.Given), byte(v.Key.Space), int64(v.Time), v.Quantity.String()
	for to, s := range map[*string]string{&out.Key: v.Key.Name, &out.ID: v.ID, &out.Meter: v.Meter, &out.Type: v.Type,
		&out.Customer: v.Customer,
		&out.Resource: v.Resource, &out.Properties: v.Properties, &out.Corrects: v.Corrects, &out.Reason: v.Reason} {
		*to = strings.Clone(s)
	}
	for _, o := range v.Outcomes {
		out.Outcomes = append(out.Outcomes,
			pageOutcome{Meter: o.Meter, Why: byte(o.Why), Overage: o.Overage, Value: o.Value.String(),
				Base: o.Base.String(), Member: strings.Clone(o.Member), Amount: o.Amount.String()})
	}
	return out
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func appendText(b []byte, texts ...string) []byte {
	for _, s := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

func plainEntry(e *account.Row) []string {
	flags := byte(0)
	for i, on := range []bool{e.System, e.Late, e.Gap} {
		if on {
			flags |= 1 << i
		}
	}
	out := []string{string([]byte{byte(e.Type), byte(e.Given), flags})}
	for _, s := range []string{e.ID, e.Account, e.Counter, e.Transfer, e.Hold, e.Corrects, e.Reason, e.Metadata} {
		out = append(out, strings.Clone(s))
	}
	out = append(out, e.Amount.String(), fmt.Sprint(int64(e.Time)), fmt.Sprint(e.Sequence),
		fmt.Sprint(int64(e.Expires)))
	return append(out, fmt.Sprint(e.Version), e.Balance.String(), e.Held.String())
}

// treeKey finds the key of the tree in the state of the tenant.
func (p *page) treeKey(r *pageRow) cipher.Block {
	if r.Change == nil || r.Change[6] != "tenant" {
		return nil
	}
	var state struct {
		Keys []struct {
			Key []byte `json:"key"`
		} `json:"tree_keys"`
	}
	p.must(json.Unmarshal([]byte(r.Change[10]), &state) == nil && len(state.Keys) == 1, "the tenant's keys")
	block, err := aes.NewCipher(state.Keys[0].Key)
	p.must(err == nil, "the tenant's key: %v", err)
	return block
}

// secret is a nonce or a blind of a row.
func secret(key cipher.Block, which byte, seq uint64) []byte {
	b := binary.BigEndian.AppendUint64([]byte{which, 0, 0, 0, 0, 0, 0, 0}, seq)
	key.Encrypt(b, b)
	return b
}

func (p *page) leaf(key cipher.Block, r *pageRow) []byte {
	b := append([]byte{0}, secret(key, 0, r.Seq)...)
	return digest(p.canonical(b, r, key))
}

func digest(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}

// merkle is the root of leaves as RFC 6962 defines it.
func merkle(leaves [][]byte) []byte {
	if len(leaves) == 1 {
		return leaves[0]
	}
	k := 1 << (bits.Len(uint(len(leaves)-1)) - 1)
	return digest(append(append([]byte{1}, merkle(leaves[:k])...), merkle(leaves[k:])...))
}

// canonical appends a row as the tree sees it.
func (p *page) canonical(b []byte, r *pageRow, key cipher.Block) []byte {
	place := appendText(binary.AppendVarint(binary.AppendUvarint(nil, r.Seq), r.At), r.By)
	if e := r.Entry; e != nil {
		b = append(append(append(b, 1, 'a'), place...), e[0]...)
		b = append(appendText(b, e[1:9]...), p.amounts[e[9]]...)
		b = binary.AppendVarint(b, number(e[10]))
		b = binary.AppendUvarint(b, uint64(number(e[11])))
		b = binary.AppendVarint(b, number(e[12]))
		b = binary.AppendUvarint(b, uint64(number(e[13])))
		return append(append(b, p.amounts[e[14]]...), p.amounts[e[15]]...)
	}
	if r.Change != nil {
		b = append(append(b, 1, 'c'), place...)
		if r.Change[6] == "" {
			return appendText(b, r.Change...)
		}
		b = appendText(b, r.Change[:8]...)
		state := append(append([]byte{2}, secret(key, 1, r.Seq)...), r.Change[10]...)
		return append(append(b, r.Change[8][0], r.Change[9][0]), digest(state)...)
	}
	b = append(append(b, 1, 'e'), place...)
	b = appendText(append(b, r.Space, r.Given), r.Key)
	if r.Space == 'd' {
		b = appendText(b, r.ID)
	}
	b = appendText(b, r.Meter, r.Type, r.Customer, r.Resource)
	b = append(binary.AppendVarint(b, r.Time), p.amounts[r.Quantity]...)
	b = appendText(b, r.Properties, r.Corrects)
	if r.Corrects != "" {
		b = appendText(b, r.Reason)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Outcomes)))
	for _, o := range r.Outcomes {
		why := o.Why
		if o.Overage {
			why |= 0x80
		}
		b = append(binary.AppendUvarint(append(b, why), uint64(o.Meter)), p.amounts[o.Value]...)
		if r.Corrects != "" {
			b = append(b, p.amounts[o.Base]...)
		}
		b = appendText(b, o.Member)
		if o.Why != 0 {
			b = append(b, p.amounts[o.Amount]...)
		}
	}
	return b
}
