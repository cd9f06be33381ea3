package request

import (
	"crypto/sha256"

	"github.com/tallystick/tallystick/internal/core/calendar"
)

// Answer is an answer as a caller got it.
type Answer struct {
	Status      int
	ContentType string
	Location    string
	Body        []byte // without secrets, which are shown once
}

// Stored is a request that was answered under a key, kept in the same commit as its effect.
type Stored struct {
	Key         string
	Fingerprint [sha256.Size]byte
	Answer
	// Tenant is set instead of the answer when the effect lies in another tenant's ledger: the answer is kept there.
	Tenant    string
	ExpiresAt calendar.Micros
}

// Live reports whether the key still stands for this request.
func (s *Stored) Live(now calendar.Micros) bool { return s.ExpiresAt > now }
