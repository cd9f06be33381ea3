package secrets

import (
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
)

const (
	prefix = "whsec_"
	// Sizes of a signing secret in bytes, as Standard Webhooks sets them, and of those that are made here.
	minSecret  = 24
	maxSecret  = 64
	madeSecret = 32
	// maxValid is how many secrets sign at once. Who rotates more often within one overlap loses the oldest early: each
	// is a signature in a header of every delivery.
	maxValid = 4
)

// Overlap is how long a secret stays valid after another replaced it, where nothing else is set: receivers have that
// long to learn the new one.
const Overlap = 24 * time.Hour

// Signing is a secret that webhooks are signed with: whsec_ and base64. It shows nothing of itself when printed, at
// whatever depth: the text is behind a pointer, which printing does not follow.
type Signing struct{ text *string }

// NewSigning makes a secret of random bytes.
func NewSigning(random io.Reader) (Signing, error) {
	raw := make([]byte, madeSecret)
	if _, err := io.ReadFull(random, raw); err != nil {
		return Signing{}, fmt.Errorf("make a secret: %w", err)
	}
	text := prefix + base64.StdEncoding.EncodeToString(raw)
	return Signing{&text}, nil
}

// ParseSigning takes a secret that a caller brings. path names it in the problem, which never shows it.
func ParseSigning(path, text string) (Signing, error) {
	encoded, found := strings.CutPrefix(text, prefix)
	if !found {
		return Signing{}, problem.At(path, "must begin with %s, or leave it out and one is made", prefix)
	}
	if len(encoded) > base64.StdEncoding.EncodedLen(maxSecret) {
		return Signing{}, problem.At(path, "is longer than %d bytes in base64", maxSecret)
	}
	raw, err := decode(encoded)
	switch {
	case err != nil:
		return Signing{}, problem.At(path, "must be base64 after %s, in its standard alphabet and padded with =",
			prefix)
	case len(raw) < minSecret || len(raw) > maxSecret:
		return Signing{}, problem.At(path, "holds %d bytes in base64 after %s: between %d and %d are needed", len(raw),
			prefix, minSecret, maxSecret)
	}
	text = strings.Clone(text)
	return Signing{&text}, nil
}

// Reveal returns the secret itself: for signing, sealing and the one answer that shows it.
func (s Signing) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Equal compares in constant time.
func (s Signing) Equal(other Signing) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// Format shows that there is a secret, whatever the verb.
func (Signing) Format(s fmt.State, _ rune) { fmt.Fprint(s, prefix+"…") }

// Validity is a secret and until when it signs.
type Validity struct {
	Secret Signing
	Until  time.Time // zero: until it is replaced
}

// Rotate returns the secrets of a sink after fresh joined them. It signs first. Those before it stay valid for the
// overlap, or as long as they had, whichever is shorter; an overlap of zero ends them at once, as a leak calls for.
func Rotate(have []Validity, fresh Signing, now time.Time, overlap time.Duration) []Validity {
	out := []Validity{{Secret: fresh}}
	end := now.Add(overlap)
	for _, v := range Valid(have, now) {
		if v.Until.IsZero() || v.Until.After(end) {
			v.Until = end
		}
		if v.Until.After(now) && !v.Secret.Equal(fresh) && len(out) < maxValid {
			out = append(out, v)
		}
	}
	return out
}

// Valid returns the secrets that sign now, the newest first.
func Valid(have []Validity, now time.Time) []Validity {
	var out []Validity
	for _, v := range have {
		if v.Until.IsZero() || now.Before(v.Until) {
			out = append(out, v)
		}
	}
	return out
}
