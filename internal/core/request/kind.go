package request

import (
	"encoding/json"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
)

// Kind is answered requests, by their key.
var Kind = entity.Kind[Stored]{
	Name: "request", Version: 1,
	ID:      func(s *Stored) string { return s.Key },
	Encode:  encode,
	Decode:  decode,
	Expires: func(s *Stored) calendar.Micros { return s.ExpiresAt },
}

// shape is an answered request on disk.
type shape struct {
	Fingerprint []byte          `json:"fingerprint"`
	Status      int             `json:"status,omitempty"`
	ContentType string          `json:"content_type,omitempty"`
	Location    string          `json:"location,omitempty"`
	Body        []byte          `json:"body,omitempty"`
	Tenant      string          `json:"tenant,omitempty"`
	ExpiresAt   calendar.Micros `json:"expires_at"`
}

func encode(s *Stored) []byte {
	return entity.Shape(shape{
		s.Fingerprint[:], s.Status, s.ContentType, s.Location, s.Body, s.Tenant, s.ExpiresAt,
	})
}

func decode(e *entity.Entity) (Stored, error) {
	var in shape
	if err := json.Unmarshal(e.Data, &in); err != nil {
		return Stored{}, err
	}
	out := Stored{
		Key: e.ID, Tenant: in.Tenant, ExpiresAt: in.ExpiresAt,
		Answer: Answer{Status: in.Status, ContentType: in.ContentType, Location: in.Location, Body: in.Body},
	}
	if copy(out.Fingerprint[:], in.Fingerprint) != len(out.Fingerprint) || len(in.Fingerprint) != len(out.Fingerprint) {
		return Stored{}, fmt.Errorf("its fingerprint has %d bytes", len(in.Fingerprint))
	}
	return out, nil
}
