// Package sink says what a sink is: a receiver of a tenant's rows, which of them it asks for, and what became of
// deliveries that failed. It knows no network.
package sink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
)

// Limits of a sink.
const (
	MaxSinks     = 100 // of a tenant
	MaxName      = 255
	MaxBatch     = 1000
	DefaultBatch = 100
	MaxTypes     = 32
	MaxType      = 100
	MaxAddresses = 16 // brokers or servers
	MaxAddress   = 255
	MaxURL       = 2048
	MaxTopic     = 249 // as Kafka has it
	MaxSubject   = 255
)

// Way is how rows reach the receiver.
type Way uint8

// The ways.
const (
	Webhook Way = iota + 1
	Kafka
	NATS
)

var wayNames = [...]string{"", "webhook", "kafka", "nats"}

func (w Way) String() string { return wayNames[w] }

// ParseWay reads a name of the contract. Errors: Invalid.
func ParseWay(s string) (Way, *problem.Error) {
	if i := slices.Index(wayNames[:], s); i > 0 {
		return Way(i), nil
	}
	return 0, problem.At("kind", "%q is not one of webhook, kafka, nats", s)
}

// Rows says which kinds of rows a sink asks for.
type Rows uint8

// The kinds of rows.
const (
	Events Rows = 1 << iota
	Entries
	Changes
	AllRows = Events | Entries | Changes
)

var rowNames = [...]string{"event", "entry", "change"}

// ParseRows reads names of the contract; none are all. Errors: Invalid.
func ParseRows(names []string) (r Rows, p *problem.Error) {
	if names == nil {
		return AllRows, nil
	}
	for i, name := range names {
		at := slices.Index(rowNames[:], name)
		if at < 0 {
			return 0, problem.At(fmt.Sprintf("rows[%d]", i), "%q is not one of event, entry, change", name)
		}
		r |= 1 << at
	}
	if r == 0 {
		return 0, problem.At("rows", "name at least one of event, entry, change")
	}
	return r, nil
}

// Names are those of the contract.
func (r Rows) Names() []string {
	out := []string{}
	for i, name := range rowNames {
		if r&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// Filter is which rows a sink asks for. It is kept with a delivery, whose rows stay the same when the sink changes.
type Filter struct {
	Rows  Rows     `json:"rows"`
	Types []string `json:"types,omitempty"` // names, or beginnings that end with a star; none: all
}

// Wants reports whether a row is asked for, by its kind and type.
func (f *Filter) Wants(r Rows, rowType string) bool {
	if f.Rows&r == 0 {
		return false
	}
	if len(f.Types) == 0 {
		return true
	}
	return slices.ContainsFunc(f.Types, func(t string) bool {
		if begin, ok := strings.CutSuffix(t, "*"); ok {
			return strings.HasPrefix(rowType, begin)
		}
		return t == rowType
	})
}

// Secret signs deliveries, until it expires.
type Secret struct {
	Sealed  []byte          `json:"sealed"`            // encrypted; see the service
	Expires calendar.Micros `json:"expires,omitempty"` // 0: it is the one in use
}

// Sink is a receiver.
type Sink struct {
	ID      string
	Name    string
	Way     Way
	URL     string   // of a webhook
	Servers []string // brokers of Kafka, servers of NATS
	Topic   string   // of Kafka, or the subject of NATS
	Filter
	Batch     int // rows of a delivery, at most
	Start     uint64
	Paused    bool
	Deleted   bool
	Secrets   []Secret // the newest first
	CreatedAt calendar.Micros
	UpdatedAt calendar.Micros
}

// Check judges the parts of a sink that need no network. Errors: Invalid.
func (s *Sink) Check() *problem.Error {
	if s.Name == "" {
		return problem.At("name", "required")
	}
	if p := tenant.CheckName("name", s.Name, MaxName); p != nil {
		return p
	}
	if s.Batch < 1 || s.Batch > MaxBatch {
		return problem.At("batch", "from 1 to %d, not %d", MaxBatch, s.Batch)
	}
	if p := s.checkTypes(); p != nil {
		return p
	}
	switch s.Way {
	case Webhook:
		if s.URL == "" {
			return problem.At("url", "required for a webhook")
		}
		if len(s.URL) > MaxURL {
			return problem.At("url", "at most %d bytes", MaxURL)
		}
	case Kafka:
		return s.checkServers("brokers", "topic", MaxTopic)
	case NATS:
		return s.checkServers("servers", "subject", MaxSubject)
	}
	return nil
}

func (s *Sink) checkTypes() *problem.Error {
	if len(s.Types) > MaxTypes {
		return problem.At("types", "at most %d", MaxTypes)
	}
	for i, t := range s.Types {
		path := fmt.Sprintf("types[%d]", i)
		if t == "" || len(t) > MaxType {
			return problem.At(path, "from 1 to %d bytes", MaxType)
		}
		plain := strings.TrimSuffix(t, "*")
		for _, c := range plain {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' {
				return problem.At(path, "%q is no type of a row: write usage.recorded, or a beginning as invoice.*", t)
			}
		}
	}
	return nil
}

func (s *Sink) checkServers(servers, topic string, longest int) *problem.Error {
	if len(s.Servers) == 0 || len(s.Servers) > MaxAddresses {
		return problem.At(servers, "from 1 to %d addresses", MaxAddresses)
	}
	for i, a := range s.Servers {
		if a == "" || len(a) > MaxAddress || strings.ContainsAny(a, " \t\r\n,@") {
			return problem.At(fmt.Sprintf("%s[%d]", servers, i), "an address, as host:port, without a user")
		}
	}
	if s.Topic == "" || len(s.Topic) > longest || strings.ContainsAny(s.Topic, " \t\r\n*>/\\\"") {
		return problem.At(topic, "from 1 to %d bytes without spaces and wildcards", longest)
	}
	return nil
}

// Follower is the name that the sink follows a ledger by.
func Follower(id string) string { return followerPrefix + id }

const followerPrefix = "sink:"

// OfFollower is the sink that follows a ledger by that name.
func OfFollower(name string) (id string, ok bool) { return strings.CutPrefix(name, followerPrefix) }

// State is what became of an item.
type State string

// The states of an item.
const (
	Pending    State = "PENDING"    // it waits for its next attempt
	Processing State = "PROCESSING" // an attempt is under way
	Recovered  State = "RECOVERED"  // it was delivered after all
	Failed     State = "FAILED"     // nothing is tried any more
)

// Item is a range of rows that is delivered out of order: a delivery that failed, or a replay that was asked for.
type Item struct {
	ID        string
	Sink      string
	From, To  uint64
	Filter    Filter
	Asked     bool // it is a replay that somebody asked for, and never failed before
	State     State
	Attempts  int
	Error     string // of the last attempt
	CreatedAt calendar.Micros
	UpdatedAt calendar.Micros
}
