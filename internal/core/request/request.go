// Package request identifies requests that may be retried: the rules of an Idempotency-Key and the fingerprint that
// distinguishes a retry from another request under the same key.
package request

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// Bounds of an Idempotency-Key. On facts the key is a prefix of ids, so it leaves room for "#<index>".
const (
	MaxKey      = 255
	MaxKeyFacts = 240
)

// ParseKey reads the header: a bare token or a quoted string of 1 to limit visible ASCII characters.
func ParseKey(header string, limit int) (string, *problem.Error) {
	key := strings.Trim(header, " \t")
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	if key == "" || len(key) > limit {
		return "", problem.New(problem.Malformed, "Idempotency-Key must have 1 to %d characters", limit)
	}
	for i := 0; i < len(key); i++ {
		if key[i] <= ' ' || key[i] > '~' || key[i] == '"' || key[i] == '\\' {
			return "", problem.New(problem.Malformed,
				"Idempotency-Key must be visible ASCII without quotes and backslashes")
		}
	}
	return key, nil
}

// Fingerprint is equal for two requests only if method, route, query, content type and body are.
func Fingerprint(method, route, query, contentType string, body []byte) [sha256.Size]byte {
	const version = 1
	h := sha256.New()
	var length [8]byte
	h.Write([]byte{version})
	for _, part := range [...]string{method, route, query, contentType} {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	h.Write(body)
	return [sha256.Size]byte(h.Sum(nil))
}
