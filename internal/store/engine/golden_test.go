package engine_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// newGolden names a golden store to make instead of reading those that are there: make golden.
var newGolden = flag.String("golden", "", "make the golden store of this name from the present format")

const goldenDir = "testdata/golden"

func goldenOptions(dir string, clock *storetest.Clock) engine.Options {
	return engine.Options{Dir: dir, Now: clock.Now, SegmentBytes: 64 << 10, IndexEntries: 128, CheckpointBytes: 4 << 10}
}

func openGolden(t *testing.T, dir string, clock *storetest.Clock) *engine.Engine {
	t.Helper()
	e, err := engine.Open(goldenOptions(dir, clock))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func mustCloseGolden(t *testing.T, e *engine.Engine) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// Given a data directory that an earlier build left behind, when this build opens it, then it shows what was shown
// then, knows every key, takes more, verifies, and is the same again when everything derived is lost.
func TestGoldenStores(t *testing.T) {
	if *newGolden != "" {
		makeGolden(t, *newGolden)
	}
	packed, err := filepath.Glob(filepath.Join(goldenDir, "*.zip"))
	if err != nil || len(packed) == 0 {
		t.Fatalf("there are no golden stores: %v", err)
	}
	for _, path := range packed {
		t.Run(filepath.Base(path), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			unpack(t, path, dir)
			want, err := os.ReadFile(strings.TrimSuffix(path, ".zip") + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			clock := storetest.NewClock()
			clock.Advance(24 * time.Hour)
			e := openGolden(t, dir, clock)
			if diff := cmp.Diff(string(want), storetest.GoldenText(t, e)); diff != "" {
				t.Errorf("it does not show what it did:\n%s", diff)
			}
			storetest.UseGolden(t, e, clock)
			if err := e.Verify(context.Background(), nil); err != nil {
				t.Errorf("verify: %v", err)
			}
			now := storetest.GoldenText(t, e)
			mustCloseGolden(t, e)
			for _, derived := range []string{"state", "keys", "slices"} {
				if err := os.RemoveAll(filepath.Join(dir, derived)); err != nil {
					t.Fatal(err)
				}
			}
			e = openGolden(t, dir, clock)
			defer mustCloseGolden(t, e)
			if diff := cmp.Diff(now, storetest.GoldenText(t, e)); diff != "" {
				t.Errorf("made again from the journal it shows something else:\n%s", diff)
			}
			storetest.UseGolden(t, e, clock)
		})
	}
}

// Given a directory whose format is newer than this build, when it is opened, then the error says what to do, and
// nothing in it changes.
func TestANewerFormatSaysWhatToDo(t *testing.T) {
	packed, err := filepath.Glob(filepath.Join(goldenDir, "*.zip"))
	if err != nil || len(packed) == 0 {
		t.Fatalf("there are no golden stores: %v", err)
	}
	for file, age := range map[string]func(b []byte){
		"STORE": func(b []byte) { b[len("tallystick store v")] = '9' },
		"journal/0000000001.journal": func(b []byte) {
			b[8] += 9
			binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], pageCRC))
		},
	} {
		t.Run(file, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			unpack(t, packed[len(packed)-1], dir)
			path := filepath.Join(dir, file)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			age(b)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			before := filesOf(t, dir)
			e, err := engine.Open(goldenOptions(dir, storetest.NewClock()))
			if err == nil {
				mustCloseGolden(t, e)
			}
			if err == nil || !strings.Contains(err.Error(), "newer") {
				t.Errorf("opened: %v, want that a newer build is needed", err)
			}
			if diff := cmp.Diff(before, filesOf(t, dir)); diff != "" {
				t.Errorf("it changed: %s", diff)
			}
		})
	}
}

// filesOf are all files below a directory but its lock.
func filesOf(t *testing.T, dir string) map[string][sha256.Size]byte {
	t.Helper()
	out := map[string][sha256.Size]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "LOCK" {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func makeGolden(t *testing.T, name string) {
	dir := filepath.Join(t.TempDir(), "data")
	clock := storetest.NewClock()
	e := openGolden(t, dir, clock)
	storetest.FillGolden(t, e, clock)
	text := storetest.GoldenText(t, e)
	mustCloseGolden(t, e)
	if err := os.MkdirAll(goldenDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(goldenDir, name+".txt"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	if err := errors.Join(z.AddFS(os.DirFS(dir)), z.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(goldenDir, name+".zip"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// unpack fills a directory with what an archive holds.
func unpack(t *testing.T, path, dir string) {
	t.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.CopyFS(dir, z), z.Close()); err != nil {
		t.Fatal(err)
	}
}
