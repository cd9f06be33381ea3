// Package secrets keeps what the server must be able to read again and nobody else may: the secrets that webhooks are
// signed with, and credentials of brokers. They are stored encrypted under keys of a file that is in no ledger, no
// backup of a database and no log.
//
// It also owns the signing secrets themselves: how one is made, which of a caller's are good, and which are valid while
// one replaces another.
package secrets

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// What is sealed is: version (1 byte), key id (8), nonce (12), ciphertext, tag (16). Version and key id are
// authenticated too.
//
// The cipher is AES-256-GCM with random nonces: safe for 2^32 secrets under one key, which is more sinks than any
// server has.
const (
	version   = 1
	idSize    = 8
	keySize   = 32
	nonceSize = 12
	header    = 1 + idSize
	overhead  = header + nonceSize + 16
	// maxPlain bounds what is sealed: a secret, not a document.
	maxPlain = 64 << 10
)

var (
	// ErrUnknownKey is returned for what was sealed under a key that the key file does not hold.
	ErrUnknownKey = errors.New("sealed under a key that is not in the key file: put that key back as one of its " +
		"lines, " +
		"or replace the secret")
	// ErrDamaged is returned for what was not sealed by these keys for this owner.
	ErrDamaged = errors.New("not what was sealed: damaged, or of another tenant or entity")
)

// Owner is whose a secret is. What was sealed for one opens for no other, so that who can write to a database cannot
// give a tenant the secret of another.
type Owner struct {
	Tenant string
	Entity string // unique in its tenant: kind and id
}

// Keyring seals secrets and opens them. It is safe for concurrent use, and shows nothing of its keys when printed.
type Keyring struct {
	keys   []key // the first seals, all open
	random io.Reader
}

type key struct {
	id   [idSize]byte
	aead cipher.AEAD
}

func newKey(raw []byte) (key, error) {
	block, err := aes.NewCipher(raw)
	if err != nil {
		return key{}, errors.New("a key has 32 bytes")
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return key{}, err
	}
	sum := sha256.Sum256(append([]byte("tallystick key id\x00"), raw...))
	return key{id: [idSize]byte(sum[:idSize]), aead: aead}, nil
}

// Seal encrypts plain for its owner.
func (k *Keyring) Seal(plain []byte, of Owner) ([]byte, error) {
	if len(plain) > maxPlain {
		return nil, fmt.Errorf("a secret of %d bytes: at most %d are sealed", len(plain), maxPlain)
	}
	with := k.keys[0]
	out := make([]byte, header+nonceSize, overhead+len(plain))
	out[0] = version
	copy(out[1:], with.id[:])
	if _, err := io.ReadFull(k.random, out[header:]); err != nil {
		return nil, fmt.Errorf("make a nonce: %w", err)
	}
	return with.aead.Seal(out, out[header:], plain, associated(out[:header], of)), nil
}

// Open decrypts what was sealed for the owner. Errors: ErrUnknownKey, ErrDamaged.
func (k *Keyring) Open(sealed []byte, of Owner) ([]byte, error) {
	if len(sealed) < overhead || sealed[0] != version {
		return nil, ErrDamaged
	}
	for _, with := range k.keys {
		if with.id != [idSize]byte(sealed[1:header]) {
			continue
		}
		nonce, text := sealed[header:header+nonceSize], sealed[header+nonceSize:]
		plain, err := with.aead.Open(nil, nonce, text, associated(sealed[:header], of))
		if err != nil {
			return nil, ErrDamaged
		}
		return plain, nil
	}
	return nil, fmt.Errorf("%w (key id %s)", ErrUnknownKey, hex.EncodeToString(sealed[1:header]))
}

// Current reports whether something was sealed under the first key: what was not is sealed again before its key leaves
// the file.
func (k *Keyring) Current(sealed []byte) bool {
	return len(sealed) >= overhead && sealed[0] == version && k.keys[0].id == [idSize]byte(sealed[1:header])
}

// Format shows how many keys there are, whatever the verb.
func (k *Keyring) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "keyring of %d keys", len(k.keys)) }

// associated is what a seal is bound to beside its text. Lengths keep "a", "bc" apart from "ab", "c".
func associated(head []byte, of Owner) []byte {
	out := append([]byte(nil), head...)
	for _, part := range []string{of.Tenant, of.Entity} {
		out = binary.AppendUvarint(out, uint64(len(part)))
		out = append(out, part...)
	}
	return out
}

func newKeyring(raw [][]byte) (*Keyring, error) {
	ring := &Keyring{random: rand.Reader}
	for i, r := range raw {
		k, err := newKey(r)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		for j, other := range ring.keys {
			if other.id == k.id {
				return nil, fmt.Errorf("keys %d and %d are the same", j+1, i+1)
			}
		}
		ring.keys = append(ring.keys, k)
	}
	return ring, nil
}
