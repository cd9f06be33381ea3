// Package registry keeps who may use the deployment and what is counted for them: tenants, their API keys and their
// meters.
//
// Every change is a ledger row with its audit event in the same commit. A secret is returned once, to the caller that
// made the key, and kept only as its hash; neither hashes nor salts leave the package. It judges no usage and checks no
// caller's rights: that is done before it is called.
package registry

import (
	"fmt"
	"io"

	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/store"
)

// Service changes and reads the registry. It is safe for concurrent use if its source of randomness is.
type Service struct {
	store   store.Store
	ledgers ledgers.Ledgers
	random  io.Reader
}

// New works on a store; random is where salts, key ids and secrets come from: crypto/rand.Reader in production.
func New(s store.Store, random io.Reader) *Service {
	return &Service{store: s, ledgers: ledgers.New(s), random: random}
}

func (s *Service) draw(into []byte) error {
	if _, err := io.ReadFull(s.random, into); err != nil {
		return fmt.Errorf("draw randomness: %w", err)
	}
	return nil
}
