package load

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// Shape says what the generated traffic looks like. The same shape is the same traffic, event by event.
type Shape struct {
	Seed      uint64
	Tenants   int  // default 1
	Customers int  // of each tenant, drawn by a zipfian law; default 100,000
	Uniform   bool // every customer is drawn as often as any other instead
	Meters    int  // of each tenant; default 1
	// DuplicateRatio is the share of events that were sent before: 0 to below 1.
	DuplicateRatio float64
	// Hour is when the events happened: all of them lie within the hour that starts here, so that none is late, none is
	// in the future and all are billed in one month. Default: the last full hour.
	Hour time.Time
}

const (
	defaultCustomers = 100_000

	// MaxCustomers bounds the tables of names and of totals.
	MaxCustomers = 10_000_000
	maxTenants   = 1000
	maxMeters    = 100

	// drawnAhead is how many customers are drawn before the run: a look into a table costs a tenth of a draw. More than
	// fewCustomers of them need a larger table, or most would never be drawn. A stream goes through it in order, so
	// that a table that no cache holds costs as little: traffic of many customers is made as fast as that of few.
	drawnAhead   = 1 << 18
	fewCustomers = 1 << 17
	drawnEach    = 16
	maxDrawn     = 1 << 24

	// resentFrom is how far back a duplicate's first arrival lies at most, in events of its stream and tenant.
	resentFrom = 1 << 16

	millisPerHour = 3_600_000
	// jitter is how far events of a stream are out of order, in milliseconds.
	jitter = 1000
)

// Workload makes the facts of a shape. It is safe for concurrent use; its streams are not.
type Workload struct {
	shape     Shape
	hour      int64  // milliseconds since 1970
	hourText  string // of RFC 3339, as far as the minutes
	resend    uint64 // a 32-bit draw below it is a duplicate
	drawn     []uint32
	customers []string
	meters    []string
}

// Fact is one event, before it takes the form that its receiver wants.
type Fact struct {
	ID       uint64 // distinct within the tenant
	Meter    int
	Customer int
	Quantity int64
	Offset   int64 // milliseconds since the shape's hour
}

// NewWorkload draws the tables of a shape.
func NewWorkload(s Shape) (*Workload, error) {
	s.setDefaults()
	if err := s.check(); err != nil {
		return nil, err
	}
	w := &Workload{shape: s, hour: s.Hour.UnixMilli(), hourText: s.Hour.Format("2006-01-02T15:"),
		resend: uint64(s.DuplicateRatio * (1 << 32))}
	w.customers = make([]string, s.Customers)
	for i := range w.customers {
		w.customers[i] = customerPrefix + strconv.Itoa(i)
	}
	for i := range s.Meters {
		w.meters = append(w.meters, "meter_"+strconv.Itoa(i))
	}
	random := rand.New(rand.NewPCG(s.Seed, 1)) //nolint:gosec // traffic that can be repeated, not a secret
	// A few customers make most of the traffic, and most customers make little.
	zipf := rand.NewZipf(random, 1.1, 10, uint64(s.Customers-1))
	w.drawn = make([]uint32, draws(s.Customers))
	for i := range w.drawn {
		if s.Uniform {
			w.drawn[i] = random.Uint32N(uint32(s.Customers))
		} else {
			w.drawn[i] = uint32(zipf.Uint64()) // below MaxCustomers
		}
	}
	return w, nil
}

// draws is the size of the table of drawn customers, a power of two.
func draws(customers int) int {
	n := drawnAhead
	for customers > fewCustomers && n < min(drawnEach*customers, maxDrawn) {
		n *= 2
	}
	return n
}

const customerPrefix = "cus_"

func setDefault(field *int, value int) {
	if *field == 0 {
		*field = value
	}
}

func (s *Shape) setDefaults() {
	setDefault(&s.Tenants, 1)
	setDefault(&s.Customers, defaultCustomers)
	setDefault(&s.Meters, 1)
	if s.Hour.IsZero() {
		s.Hour = time.Now().Add(-time.Hour)
	}
	s.Hour = s.Hour.UTC().Truncate(time.Hour)
}

func (s *Shape) check() error {
	switch {
	case s.Tenants < 1 || s.Tenants > maxTenants:
		return fmt.Errorf("tenants: from 1 to %d, not %d", maxTenants, s.Tenants)
	case s.Customers < 1 || s.Customers > MaxCustomers:
		return fmt.Errorf("customers: from 1 to %d, not %d", MaxCustomers, s.Customers)
	case s.Meters < 1 || s.Meters > maxMeters:
		return fmt.Errorf("meters: from 1 to %d, not %d", maxMeters, s.Meters)
	case math.IsNaN(s.DuplicateRatio) || s.DuplicateRatio < 0 || s.DuplicateRatio >= 1:
		return errors.New("duplicates: a ratio from 0 to below 1")
	}
	return nil
}

// Tenants is how many tenants the traffic is for.
func (w *Workload) Tenants() int { return w.shape.Tenants }

// Meters are the slugs of every tenant's meters, all of which sum.
func (w *Workload) Meters() []string { return w.meters }

// Customers are the names of every tenant's customers.
func (w *Workload) Customers() []string { return w.customers }

// Hour is when the events happened.
func (w *Workload) Hour() time.Time { return w.shape.Hour }

// Fact is the n-th fresh fact of a stream, the same whenever it is asked for.
func (w *Workload) Fact(stream int, n uint64) Fact {
	id := mix(w.shape.Seed<<1 ^ (uint64(stream)<<streamShift | n))
	more := mix(id)
	return Fact{
		ID:       id,
		Meter:    int((more >> 40) % uint64(len(w.meters))),
		Customer: int(w.drawn[(mix(uint64(stream))+n)&uint64(len(w.drawn)-1)]),
		Quantity: int64(1 + (more>>32)%5),
		Offset:   int64((n + (more>>20)%jitter) % millisPerHour),
	}
}

// streamShift leaves each stream 2^40 facts.
const streamShift = 40

// mix scatters the bits of x and maps no two numbers to one, so ids look random and are distinct by construction.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Batch is what one request carries.
type Batch struct {
	Tenant     int
	Facts      []Fact
	Fresh      int
	Duplicates int
}

// Stream is one submitter's share of the traffic: it sends a batch, waits for the answer, and sends the next.
type Stream struct {
	w      *Workload
	number int
	dice   uint64
	turn   int
	stays  bool     // at that tenant
	next   []uint64 // by tenant: fresh facts so far
}

// NewStream makes stream number n. Two streams of one number are the same.
func (w *Workload) NewStream(n int) *Stream {
	return &Stream{w: w, number: n, dice: mix(w.shape.Seed ^ uint64(n)<<32), turn: n,
		next: make([]uint64, w.shape.Tenants)}
}

// Fill makes the stream's next batch. A duplicate repeats a fact of the same stream and tenant that stands in an
// earlier batch, or earlier in this one, so what the answer must be is known before it is sent.
func (s *Stream) Fill(b *Batch, size int) {
	b.Tenant = s.turn % len(s.next)
	if !s.stays {
		s.turn++
	}
	b.Facts, b.Fresh, b.Duplicates = b.Facts[:0], 0, 0
	next := s.next[b.Tenant]
	for range size {
		s.dice = mix(s.dice)
		if next > 0 && s.dice>>32 < s.w.resend {
			b.Facts = append(b.Facts, s.w.Fact(s.number, next-1-(s.dice&(1<<32-1))%min(next, resentFrom)))
			b.Duplicates++
			continue
		}
		b.Facts = append(b.Facts, s.w.Fact(s.number, next))
		b.Fresh++
		next++
	}
	s.next[b.Tenant] = next
}

// Stay makes all further batches those of one tenant.
func (s *Stream) Stay(tenant int) { s.turn, s.stays = tenant, true }

// Drawn is how many fresh facts the stream has made for a tenant.
func (s *Stream) Drawn(tenant int) uint64 { return s.next[tenant] }
