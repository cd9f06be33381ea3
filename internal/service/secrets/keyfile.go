package secrets

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	// maxKeys is how many keys a file holds: one in use, and those that older secrets still need.
	maxKeys = 16
	// maxKeyFile bounds what is read of it, comments included.
	maxKeyFile = 64 << 10
	// othersMay are the permissions that a key file must not give: any to group and others.
	othersMay = 0o077
)

const preamble = `# Keys that secrets of sinks are encrypted with: 32 random bytes each, in base64, one a line.
# The first encrypts, all decrypt. Keep a copy apart from the data: without it, every such secret is lost.
`

// Load reads the key file. With create, a file that is missing is made, with one new key: only where the folder is the
// server's own, because nodes that share a database must share the file.
func Load(path string, create bool) (*Keyring, error) {
	ring, err := load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return ring, err
	}
	if !create {
		return nil, fmt.Errorf("key file %s is missing: bring it back, or make one for a new deployment "+
			"(umask 077; head -c 32 /dev/urandom | base64 > %s): %w", path, path, fs.ErrNotExist)
	}
	if err := makeKeyFile(path); err != nil {
		return nil, fmt.Errorf("make the key file %s: %w", path, err)
	}
	return load(path)
}

func load(path string) (*Keyring, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	// Of the file that is open, not of its name: that may become another file in between.
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("key file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("key file %s is not a file", path)
	case info.Mode().Perm()&othersMay != 0:
		return nil, fmt.Errorf("key file %s has mode %#o, so that others than its owner may use it: chmod 600 %s; "+
			"if somebody else could read it, add a new first key and replace the secrets", path,
			info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	raw, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	ring, err := newKeyring(raw)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	return ring, nil
}

// parseKeys reads keys line by line. Its errors name lines and never show them.
func parseKeys(text []byte) ([][]byte, error) {
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("larger than %d bytes", maxKeyFile)
	}
	var out [][]byte
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		raw, err := decode(line)
		switch {
		case err != nil || len(raw) != keySize:
			return nil, fmt.Errorf("line %d is not a key: 32 random bytes in base64 (head -c 32 /dev/urandom | "+
				"base64)", n)
		case len(out) == maxKeys:
			return nil, fmt.Errorf("line %d: more than %d keys: take out those that no secret needs any more", n,
				maxKeys)
		}
		out = append(out, raw)
	}
	if len(out) == 0 {
		return nil, errors.New("it holds no key: one a line, 32 random bytes in base64 (head -c 32 /dev/urandom | " +
			"base64)")
	}
	return out, nil
}

// decode reads base64 in its one form: without line ends, with padding, and no stray bits in the last character.
func decode(text string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(raw) != text {
		return nil, errors.New("not base64")
	}
	return raw, nil
}

// makeKeyFile makes a file with one key appear whole and durable, or not at all: a secret that is sealed under a key
// which a power failure takes away is lost. Of two processes that make it, one wins and both use its file.
func makeKeyFile(path string) error {
	raw := make([]byte, keySize)
	if _, err := io.ReadFull(rand.Reader, raw); err != nil {
		return err
	}
	folder := filepath.Dir(path)
	temp, err := os.CreateTemp(folder, ".keys-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	_, err = temp.WriteString(preamble + base64.StdEncoding.EncodeToString(raw) + "\n")
	if err := errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}
	// A link, unlike a rename, never takes the place of a file that is there.
	if err := os.Link(temp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
