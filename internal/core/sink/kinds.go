package sink

import (
	"encoding/json"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
)

// Kind is sinks, by id.
var Kind = entity.Kind[Sink]{
	Name: "sink", Version: 1,
	ID: func(s *Sink) string { return s.ID },
	Encode: func(s *Sink) []byte {
		return entity.Shape(sinkShape{s.Name, s.Way.String(), s.URL, s.Servers, s.Topic, s.Filter, s.Batch, s.Start,
			s.Paused, s.Deleted, s.Secrets, s.CreatedAt})
	},
	Decode: func(e *entity.Entity) (Sink, error) {
		var s sinkShape
		if err := json.Unmarshal(e.Data, &s); err != nil {
			return Sink{}, err
		}
		way, p := ParseWay(s.Way)
		if p != nil {
			return Sink{}, p
		}
		return Sink{ID: e.ID, Name: s.Name, Way: way, URL: s.URL, Servers: s.Servers, Topic: s.Topic, Filter: s.Filter,
			Batch: s.Batch, Start: s.Start, Paused: s.Paused, Deleted: s.Deleted, Secrets: s.Secrets,
			CreatedAt: s.CreatedAt, UpdatedAt: e.At}, nil
	},
}

type sinkShape struct {
	Name      string          `json:"name"`
	Way       string          `json:"way"`
	URL       string          `json:"url,omitempty"`
	Servers   []string        `json:"servers,omitempty"`
	Topic     string          `json:"topic,omitempty"`
	Filter    Filter          `json:"filter"`
	Batch     int             `json:"batch"`
	Start     uint64          `json:"start"`
	Paused    bool            `json:"paused,omitempty"`
	Deleted   bool            `json:"deleted,omitempty"`
	Secrets   []Secret        `json:"secrets,omitempty"`
	CreatedAt calendar.Micros `json:"created_at"`
}

// The indexes of items: those of a sink, and those of it that are to be delivered.
const (
	BySink    = "sink"
	ByWaiting = "waiting"
)

// ItemKind is items, by id.
var ItemKind = entity.Kind[Item]{
	Name: "sink_item", Version: 1,
	ID: func(i *Item) string { return i.ID },
	Encode: func(i *Item) []byte {
		return entity.Shape(itemShape{i.Sink, i.From, i.To, i.Filter, i.Asked, i.State, i.Attempts, i.Error,
			i.CreatedAt})
	},
	Decode: func(e *entity.Entity) (Item, error) {
		var i itemShape
		if err := json.Unmarshal(e.Data, &i); err != nil {
			return Item{}, err
		}
		return Item{ID: e.ID, Sink: i.Sink, From: i.From, To: i.To, Filter: i.Filter, Asked: i.Asked, State: i.State,
			Attempts: i.Attempts, Error: i.Error, CreatedAt: i.CreatedAt, UpdatedAt: e.At}, nil
	},
	Terms: func(i *Item) []entity.Term {
		terms := []entity.Term{{Index: BySink, Value: i.Sink}}
		if i.State == Pending {
			terms = append(terms, entity.Term{Index: ByWaiting, Value: i.Sink})
		}
		return terms
	},
}

type itemShape struct {
	Sink      string          `json:"sink"`
	From      uint64          `json:"from"`
	To        uint64          `json:"to"`
	Filter    Filter          `json:"filter"`
	Asked     bool            `json:"asked,omitempty"`
	State     State           `json:"state"`
	Attempts  int             `json:"attempts,omitempty"`
	Error     string          `json:"error,omitempty"`
	CreatedAt calendar.Micros `json:"created_at"`
}
