package secrets

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func write(t *testing.T, text string, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secrets.key")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func line(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) + "\n" }

func TestAKeyFileIsMadeOnceAndReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secrets.key")
	first, err := Load(path, true)
	if err != nil {
		t.Fatal(err)
	}
	sealed := seal(t, first, "kept", sink)
	again, err := Load(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := again.Open(sealed, sink); err != nil || string(plain) != "kept" {
		t.Errorf("%q, %v", plain, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the file there is more: %v, %v", left, err)
	}
}

func TestProcessesThatStartTogetherUseOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secrets.key")
	rings := make([]*Keyring, 8)
	errs := make([]error, len(rings))
	var all sync.WaitGroup
	for i := range rings {
		all.Go(func() { rings[i], errs[i] = Load(path, true) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, ring := range rings {
		if ring.keys[0].id != rings[0].keys[0].id {
			t.Error("two keys were made")
		}
	}
}

// Forced, not left to luck: the file appears after this process found none.
func TestMakingTakesNoFilesPlace(t *testing.T) {
	path := write(t, line(keyA), 0o600)
	if err := makeKeyFile(path); err != nil {
		t.Fatal(err)
	}
	ring, err := Load(path, true)
	if err != nil || ring.keys[0].id != ringOf(t, keyA).keys[0].id {
		t.Errorf("%v, %v", ring, err)
	}
}

func TestAMissingFileIsNotMadeElsewhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secrets.key")
	_, err := Load(path, false)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "head -c 32 /dev/urandom | base64 > "+path) {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
}

func TestAKeyFileIsItsOwnersAlone(t *testing.T) {
	for _, mode := range []fs.FileMode{0o644, 0o640, 0o604, 0o660, 0o602, 0o610, 0o777} {
		path := write(t, line(keyA), mode)
		if _, err := Load(path, true); err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) ||
			!strings.Contains(err.Error(), fmt.Sprintf("%#o", mode)) {
			t.Errorf("mode %#o: %v", mode, err)
		}
	}
	for _, mode := range []fs.FileMode{0o600, 0o400} {
		if _, err := Load(write(t, line(keyA), mode), false); err != nil {
			t.Errorf("mode %#o: %v", mode, err)
		}
	}
	if _, err := Load(t.TempDir(), false); err == nil {
		t.Error("a folder was taken")
	}
}

func TestKeyFiles(t *testing.T) {
	path := write(t, "# new\r\n  "+line(keyB)+"\n\n# old\n"+strings.TrimSpace(line(keyA)), 0o600)
	ring, err := Load(path, false)
	if err != nil || len(ring.keys) != 2 || ring.keys[0].id != ringOf(t, keyB).keys[0].id {
		t.Fatalf("%v, %v", ring, err)
	}
	short := bytes.Repeat([]byte{7}, 31)
	var many strings.Builder
	for i := range maxKeys + 1 {
		many.WriteString(line(bytes.Repeat([]byte{byte(i)}, keySize)))
	}
	for _, c := range []struct{ text, says string }{
		{"", "holds no key"},
		{"# nothing\n\n", "holds no key"},
		{line(keyA) + line(short), "line 2 is not a key"},
		{line(append(keyA[:keySize:keySize], 1)), "line 1 is not a key"},
		{"\n" + strings.TrimRight(line(keyA), "=\n"), "line 2 is not a key"},
		{strings.Replace(line(keyA), "=", "==", 1), "line 1 is not a key"},
		{"hunter2hunter2hunter2", "line 1 is not a key"},
		{strings.ReplaceAll(line(bytes.Repeat([]byte{0xff}, keySize)), "/", "_"), "line 1 is not a key"},
		{line(keyA)[:43] + "\x00\n", "line 1 is not a key"},
		{line(keyA) + line(keyB) + line(keyA), "keys 1 and 3 are the same"},
		{many.String(), "more than 16 keys"},
		{strings.Repeat("#", maxKeyFile+1), "larger than"},
	} {
		path := write(t, c.text, 0o600)
		_, err := Load(path, true)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		for shown := range strings.Lines(c.text) {
			if text := strings.TrimSpace(shown); len(text) > 8 && !strings.HasPrefix(text, "#") &&
				strings.Contains(err.Error(), text[:8]) {
				t.Errorf("the error shows the line: %v", err)
			}
		}
	}
}

func FuzzKeyFile(f *testing.F) {
	f.Add([]byte(line(keyA) + "# old\n" + line(keyB)))
	f.Add([]byte("\n#\n"))
	f.Add([]byte(line(keyA)[:20]))
	f.Fuzz(func(t *testing.T, text []byte) {
		raw, err := parseKeys(text)
		if err != nil {
			return
		}
		if len(raw) == 0 || len(raw) > maxKeys {
			t.Fatalf("%d keys", len(raw))
		}
		for _, r := range raw {
			if len(r) != keySize || !bytes.Contains(text, bytes.TrimSpace([]byte(line(r)))) {
				t.Errorf("a key that is not in the file")
			}
		}
	})
}
