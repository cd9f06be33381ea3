package archive

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"sort"
	"strings"
	"testing"
)

// checkSignature computes a request's signature from what arrived, with code of its own, and holds the body against its
// hash. The keys are secrets by id.
func checkSignature(t *testing.T, r *http.Request, keys map[string]string) {
	t.Helper()
	auth := map[string]string{}
	fields, found := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	for _, f := range strings.Split(fields, ", ") {
		k, v, _ := strings.Cut(f, "=")
		auth[k] = v
	}
	id, scope, _ := strings.Cut(auth["Credential"], "/")
	secret, known := keys[id]
	if !found || !known {
		t.Errorf("a request without a signature of ours: %s", r.Header.Get("Authorization"))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller has gone away
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != r.Header.Get("X-Amz-Content-Sha256") {
		t.Errorf("the body of %s %s is not what was signed", r.Method, r.URL)
	}
	var query []string
	for k, values := range r.URL.Query() {
		query = append(query, strings.ReplaceAll(escapePath(k), "/", "%2F")+"="+
			strings.ReplaceAll(escapePath(values[0]),
				"/", "%2F"))
	}
	sort.Strings(query)
	canonical := r.Method + "\n" + r.URL.EscapedPath() + "\n" + strings.Join(query, "&") + "\n"
	for _, name := range strings.Split(auth["SignedHeaders"], ";") {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		canonical += name + ":" + value + "\n"
	}
	canonical += "\n" + auth["SignedHeaders"] + "\n" + r.Header.Get("X-Amz-Content-Sha256")
	digest := sha256.Sum256([]byte(canonical))
	key := []byte("AWS4" + secret)
	for _, part := range append(strings.Split(scope, "/"),
		"AWS4-HMAC-SHA256\n"+r.Header.Get("X-Amz-Date")+"\n"+scope+"\n"+hex.EncodeToString(digest[:])) {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	if hex.EncodeToString(key) != auth["Signature"] {
		t.Errorf("the signature of %s %s is wrong; it should be over\n%s", r.Method, r.URL, canonical)
	}
	if token := r.Header.Get("X-Amz-Security-Token"); token != "" && !strings.Contains(auth["SignedHeaders"],
		"x-amz-security-token") {
		t.Error("the session's token is not signed")
	}
}

// large is the content of an object of three parts, the last of one byte.
func large() []byte {
	b := bytes.Repeat([]byte("0123456789abcdef"), 2*MinPart/16)
	b[MinPart] = 'x'
	return append(b, '!')
}

// Given a large file, when parts of it fail in passing, then each is sent again by itself, and what is read back is the
// file.
func TestALargeObjectGoesUpInParts(t *testing.T) {
	asked, failures := map[string]int{}, map[string]int{"PUT 1": 1, "PUT 2": 2, "POST ": 1}
	b := server(t, func(w http.ResponseWriter, r *http.Request) bool {
		what := r.Method + " " + r.URL.Query().Get("partNumber")
		asked[what]++
		if r.Method == http.MethodPut && r.ContentLength > MinPart {
			t.Errorf("a part of %d bytes", r.ContentLength)
		}
		if failures[what] > 0 {
			failures[what]--
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}
		return false
	})
	if err := b.Put(ctx, "acme-0/2025-01.parquet", temp(t, large())); err != nil {
		t.Fatal(err)
	}
	if got := read(t, b, "acme-0/2025-01.parquet"); !bytes.Equal(got, large()) {
		t.Errorf("%d bytes came back of %d", len(got), len(large()))
	}
	if asked["PUT 1"] != 2 || asked["PUT 2"] != 3 || asked["PUT 3"] != 1 || asked["POST "] != 3 ||
		asked["DELETE "] != 0 {
		t.Errorf("asked %v", asked)
	}
}

// Given an upload that fails for good, at any step, then it is given up at the server, and there is no object.
func TestAnUploadThatFailsIsGivenUp(t *testing.T) {
	for name, fails := range map[string]func(r *http.Request) bool{
		"a part": func(r *http.Request) bool { return r.URL.Query().Get("partNumber") == "2" },
		"the assembly": func(r *http.Request) bool {
			return r.Method == http.MethodPost &&
				r.URL.Query().Has("uploadId")
		},
		"the beginning": func(r *http.Request) bool { return r.URL.Query().Has("uploads") },
	} {
		aborted := 0
		b := server(t, func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete {
				aborted++
			}
			if fails(r) {
				w.WriteHeader(http.StatusForbidden)
				return true
			}
			return false
		})
		if err := b.Put(ctx, "x", temp(t, large())); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("%s: %v", name, err)
		}
		if want := map[bool]int{true: 0, false: 1}[name == "the beginning"]; aborted != want {
			t.Errorf("%s: given up %d times", name, aborted)
		}
		if _, err := b.Open(ctx, "x"); err == nil {
			t.Errorf("%s: there is an object", name)
		}
	}
}

// Given a server that says 200 and then that it failed, as S3 does when assembling takes long, then the upload has
// failed.
func TestAnAssemblyThatFailsAfterItsStatus(t *testing.T) {
	b := server(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
			_, _ = io.WriteString(w,
				"<?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code><Message>try again</Message></Error>")
			return true
		}
		return false
	})
	if err := b.Put(ctx, "x", temp(t, large())); err == nil || !strings.Contains(err.Error(), "InternalError") {
		t.Errorf("%v", err)
	}
}

// Given a caller that goes away in the middle, then the upload is given up all the same.
func TestAnUploadWhoseCallerGoesAway(t *testing.T) {
	going, leave := context.WithCancel(ctx)
	aborted := make(chan struct{}, 1)
	b := server(t, func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Query().Get("partNumber") == "2":
			leave()
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		case r.Method == http.MethodDelete:
			aborted <- struct{}{}
		}
		return false
	})
	if err := b.Put(going, "x", temp(t, large())); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-aborted
}
