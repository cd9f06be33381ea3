package retention

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/tenant"
)

// manifestVersion is the format's. Another one is never guessed at.
const manifestVersion = 1

// manifestJSON says what an archive of one month of one tenant holds.
type manifestJSON struct {
	Version  int         `json:"version"`
	Tenant   string      `json:"tenant"`
	Ledger   string      `json:"ledger"` // distinguishes ledgers of tenants that have one id in two deployments
	Month    string      `json:"month"`
	Rows     uint64      `json:"rows"`
	Stay     uint64      `json:"adjusted_rows"`
	FirstSeq uint64      `json:"first_seq"`
	LastSeq  uint64      `json:"last_seq"`
	Sections uint64      `json:"sections"`
	Leaves   string      `json:"leaves"` // SHA-256 over the leaves of the rows here, in order
	Meters   []meterJSON `json:"meters"`
	Files    []fileJSON  `json:"files"`
}

type meterJSON struct {
	Meter string `json:"meter"`
	Rows  uint64 `json:"rows"`
	Sum   string `json:"sum"` // of what the meter took from the rows, corrections included
}

type fileJSON struct {
	Name     string `json:"name"`
	Rows     uint64 `json:"rows"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
}

// manifest is one that was written or read, with its name and hash.
type manifest struct {
	manifestJSON
	name  string
	sum   [sha256.Size]byte
	month calendar.Month
}

// ledgerID distinguishes ledgers without showing the salt.
func ledgerID(t *tenant.Tenant) string {
	sum := sha256.Sum256(append([]byte("tallystick archive of "+t.ID+"\x00"), t.Salt[:]...))
	return hex.EncodeToString(sum[:6])
}

// folder is where the archives of one ledger are.
func folder(t *tenant.Tenant) string { return t.ID + "-" + ledgerID(t) }

// encode names the manifest after its own content: no archive ever takes the place of another.
func (m *manifestJSON) encode(folder string) ([]byte, manifest, error) {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, manifest{}, err
	}
	month, err := calendar.ParseMonth(m.Month)
	sum := sha256.Sum256(b)
	return b, manifest{*m, fmt.Sprintf("%s/%s-%x.json", folder, m.Month, sum[:8]), sum, month}, err
}

var errManifest = errors.New("the manifest in the archive is not the one that the ledger names")

func decodeManifest(b []byte, name string, sum [sha256.Size]byte) (manifest, error) {
	out := manifest{name: name, sum: sum}
	if sha256.Sum256(b) != sum {
		return out, fmt.Errorf("%s: %w", name, errManifest)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&out.manifestJSON); err != nil {
		return out, fmt.Errorf("%s: %w", name, err)
	}
	if out.Version != manifestVersion {
		return out, fmt.Errorf("%s has version %d, this build reads version %d: use a newer tallystick", name,
			out.Version, manifestVersion)
	}
	var err error
	out.month, err = calendar.ParseMonth(out.Month)
	return out, err
}
