package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/tallystick/tallystick/internal/service/retention"
)

var ctx = context.Background()

// server is an S3 server over HTTP. front, unless nil, may answer a request before the server sees it.
func server(t *testing.T, front func(w http.ResponseWriter, r *http.Request) bool) *Bucket {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("cold"); err != nil {
		t.Fatal(err)
	}
	s3 := gofakes3.New(backend, gofakes3.WithIntegrityCheck(true)).Server()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		checkSignature(t, r, map[string]string{"id": "secret"})
		if front == nil || !front(w, r) {
			s3.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(h.Close)
	b, err := NewBucket(BucketOptions{Location: "s3://cold/ledger/a b", Endpoint: h.URL, Credentials: Fixed("id",
		"secret", ""), PartBytes: MinPart, Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func temp(t *testing.T, content []byte) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, s retention.Storage, name string) []byte {
	t.Helper()
	blob, err := s.Open(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(io.NewSectionReader(blob, 0, blob.Size()))
	if err = errors.Join(err, blob.Close()); err != nil {
		t.Fatal(err)
	}
	return b
}

// Both kinds of storage keep a file under its name, replace it, and say when there is none.
func TestShelves(t *testing.T) {
	dir := t.TempDir()
	folder, err := NewFolder(filepath.Join(dir, "deep", "archive"))
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]retention.Storage{"folder": folder, "bucket": server(t, nil)} {
		t.Run(name, func(t *testing.T) {
			if _, err := s.Open(ctx, "acme/none"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a file that is not there: %v", err)
			}
			for _, content := range [][]byte{bytes.Repeat([]byte("tally"), 300_000), {}, []byte("another")} {
				if err := s.Put(ctx, "acme-0/2025-01.json", temp(t, content)); err != nil {
					t.Fatal(err)
				}
				if got := read(t, s, "acme-0/2025-01.json"); !bytes.Equal(got, content) {
					t.Errorf("%d bytes came back of %d", len(got), len(content))
				}
			}
		})
	}
	left, err := filepath.Glob(filepath.Join(dir, "deep", "archive", "*", "*"+unfinished))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// A server that is busy is asked again; one that refuses is not, and an answer that breaks off is no file.
func TestABucketThatFails(t *testing.T) {
	busy := 2
	b := server(t, func(w http.ResponseWriter, _ *http.Request) bool {
		if busy--; busy >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	})
	if err := b.Put(ctx, "x", temp(t, []byte("content"))); err != nil {
		t.Fatal(err)
	}
	if got := read(t, b, "x"); string(got) != "content" {
		t.Errorf("got %q", got)
	}
	asked := 0
	b = server(t, func(w http.ResponseWriter, _ *http.Request) bool {
		asked++
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	if err := b.Put(ctx, "x", temp(t, []byte("content"))); err == nil || !strings.Contains(err.Error(), "403") ||
		asked != 1 {
		t.Errorf("a server that refuses was asked %d times: %v", asked, err)
	}
	b = server(t, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("short"))
		return true
	})
	if _, err := b.Open(ctx, "x"); err == nil {
		t.Error("half an object was taken for one")
	}
}

// The example of Amazon's documentation of Signature Version 4, "GET Object".
func TestSignature(t *testing.T) {
	const nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	now := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	signed := signing{method: http.MethodGet, path: "/test.txt", sum: nothing, stamp: "20130524T000000Z",
		day: now.Format("20060102"), region: "us-east-1",
		headers: [][2]string{{"host", "examplebucket.s3.amazonaws.com"}, {"range", "bytes=0-9"},
			{"x-amz-content-sha256",
				nothing}, {"x-amz-date", "20130524T000000Z"}}}
	got := signed.authorization(Credentials{AccessKey: "AKIAIOSFODNN7EXAMPLE",
		SecretKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"})
	if want := "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"; !strings.HasSuffix(got,
		"Signature="+want) {
		t.Errorf("got %s", got)
	}
}

func TestLocationsAreChecked(t *testing.T) {
	who := Fixed("a", "b", "")
	for _, o := range []BucketOptions{
		{Location: "s3://", Credentials: who}, {Location: "https://bucket", Credentials: who}, {Location: "s3://cold"},
		{Location: "s3://cold", Credentials: who, Endpoint: "host:9000"}, {Location: "s3://cold", Credentials: who,
			PartBytes: MinPart - 1},
	} {
		if _, err := NewBucket(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}
