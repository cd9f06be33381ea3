package keyindex

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

// machine drives an index beside a list that stands for the journal and a map that
// stands for the truth.
type machine struct {
	fs      vfs.FS
	x       *Index
	journal []Entry // inserted, in order; a mark is a length of this
	known   map[Hash]Entry
	durable int
	memory  int
	probes  []heldProbe
}

// heldProbe is a probe whose lookup comes later, as in the committer.
type heldProbe struct {
	keys []Hash
	out  []Found
	at   Epoch
}

// modelHash draws from few enough values that hits, shared halves and neighbors occur.
var modelHash = rapid.Custom(func(t *rapid.T) Hash {
	hi := rapid.Uint64Range(0, 40).Draw(t, "hi")
	if rapid.Bool().Draw(t, "spread") {
		hi = mix(hi)
	}
	return Hash{Hi: hi, Lo: rapid.Uint64Range(0, 5).Draw(t, "lo")}
})

func (m *machine) want(h Hash) Found {
	e, ok := m.known[h]
	return Found{Seq: e.Seq, Check: e.Check, OK: ok}
}

func (m *machine) open(t *rapid.T) {
	x, err := Open(options(m.fs, m.memory))
	if err != nil {
		t.Fatal(err)
	}
	m.x = x
	// Invariant 3: the runs hold what lies before the mark and nothing else, so
	// replay may insert without looking.
	from := x.Mark().entries()
	for i, e := range m.journal {
		f, err := x.Get(e.Hash)
		if err != nil || f.OK != (i < from) {
			t.Fatalf("entry %d with mark %d: %+v %v", i, from, f, err)
		}
	}
	for _, e := range m.journal[from:] {
		x.Insert(e)
	}
}

func TestAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{fs: vfs.NewMem(), known: map[Hash]Entry{}, memory: rapid.IntRange(1, 6).Draw(t, "memory")}
		m.open(t)
		defer func() { m.x.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"":            m.check,
			"insert":      m.insert,
			"insert more": m.insert,
			"freeze":      m.freeze,
			"durable":     m.release,
			"probe":       m.probe,
			"lookup":      m.lookup,
			"settle":      m.settle,
			"reopen":      m.reopen,
			"verify": func(t *rapid.T) {
				if err := m.x.Verify(nil); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

func (m *machine) check(t *rapid.T) {
	h := modelHash.Draw(t, "any")
	if f, err := m.x.Get(h); err != nil || f != m.want(h) {
		t.Fatalf("%x: got %+v %v, want %+v", h, f, err, m.want(h))
	}
	if got := m.x.Mark().entries(); got > m.durable {
		t.Fatalf("mark %d is past the durable journal %d", got, m.durable)
	}
}

func (m *machine) insert(t *rapid.T) {
	for _, h := range rapid.SliceOfN(modelHash, 1, 8).Draw(t, "new") {
		if _, ok := m.known[h]; ok {
			continue
		}
		e := Entry{Hash: h, Check: uint32(len(m.journal)), Seq: uint64(len(m.journal))}
		m.x.Insert(e)
		m.known[h] = e
		m.journal = append(m.journal, e)
		if m.x.Full() {
			m.x.Freeze(markOf(len(m.journal)))
		}
	}
}

func (m *machine) freeze(*rapid.T) { m.x.Freeze(markOf(len(m.journal))) }

func (m *machine) release(t *rapid.T) {
	m.durable = rapid.IntRange(m.durable, len(m.journal)).Draw(t, "durable")
	m.x.Durable(markOf(m.durable))
}

func (m *machine) probe(t *rapid.T) {
	keys := rapid.SliceOfN(modelHash, 0, 20).Draw(t, "keys")
	p := heldProbe{keys: keys, out: make([]Found, len(keys))}
	var err error
	if p.at, err = m.x.Probe(keys, p.out); err != nil {
		t.Fatal(err)
	}
	m.probes = append(m.probes, p)
}

func (m *machine) lookup(t *rapid.T) {
	if len(m.probes) == 0 {
		return
	}
	p := rapid.SampledFrom(m.probes).Draw(t, "probe")
	for i, h := range p.keys {
		if f, err := m.x.Lookup(h, p.out[i], p.at); err != nil || f != m.want(h) {
			t.Fatalf("%x: got %+v %v, want %+v", h, f, err, m.want(h))
		}
	}
}

func (m *machine) settle(t *rapid.T) {
	if err := m.x.settle(); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) reopen(t *rapid.T) {
	if err := m.x.Close(); err != nil {
		t.Fatal(err)
	}
	m.probes = nil
	m.open(t)
}
