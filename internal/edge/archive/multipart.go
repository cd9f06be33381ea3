package archive

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

// A large object goes up in parts, each hashed, signed and repeated by itself, so that a broken connection costs one
// part. The object appears when all parts are put together, whole or not at all; an upload that fails is given up at
// the server too, where its parts would be stored and paid for. Parts are read from the file as they go: none is held
// in memory.

const (
	// MinPart is the least size of a part but the last that servers take.
	MinPart = 5 << 20
	// defaultPart makes one request of most months, and some hundred of the largest.
	defaultPart = 64 << 20
	// maxParts is the most that servers take.
	maxParts = 10_000
	// abortTimeout bounds giving up, also of a caller that has gone away.
	abortTimeout = 30 * time.Second
)

// partSize is the configured one, or what makes an object of this size fit.
func (b *Bucket) partSize(size int64) int64 { return max(b.o.PartBytes, (size+maxParts-1)/maxParts) }

// putParts uploads a file of several parts.
func (b *Bucket) putParts(ctx context.Context, name string, file *os.File, size int64) (err error) {
	var begun struct {
		UploadID string `xml:"UploadId"`
	}
	if err := b.exchange(ctx, request{method: http.MethodPost, name: name, query: url.Values{"uploads": {""}}},
		&begun); err != nil {
		return err
	}
	if begun.UploadID == "" {
		return fmt.Errorf("begin the upload of %s: the answer names no upload", name)
	}
	defer func() {
		if err != nil {
			b.abort(ctx, name, begun.UploadID)
		}
	}()
	var done completed
	for at, step := int64(0), b.partSize(size); at < size; at += step {
		part := section{file, at, min(step, size-at)}
		n := len(done.Parts) + 1
		etag, err := b.putPart(ctx, name, begun.UploadID, n, part)
		if err != nil {
			return fmt.Errorf("part %d of %s: %w", n, name, err)
		}
		done.Parts = append(done.Parts, completedPart{n, etag})
	}
	return b.complete(ctx, name, begun.UploadID, done)
}

func (b *Bucket) putPart(ctx context.Context, name, upload string, n int, part section) (etag string, err error) {
	query := url.Values{"partNumber": {strconv.Itoa(n)}, "uploadId": {upload}}
	answer, err := b.send(ctx, request{method: http.MethodPut, name: name, query: query, body: part})
	if err != nil {
		return "", err
	}
	if etag = answer.Header.Get("ETag"); etag == "" {
		err = fmt.Errorf("the answer has no ETag")
	}
	_ = answer.Body.Close() // it is empty
	return etag, err
}

// completed lists the parts of an upload.
type completed struct {
	XMLName xml.Name        `xml:"CompleteMultipartUpload"`
	Parts   []completedPart `xml:"Part"`
}

type completedPart struct {
	PartNumber int
	ETag       string
}

// complete puts the parts together. The server may say 200 before it has done so, and then that it failed.
func (b *Bucket) complete(ctx context.Context, name, upload string, done completed) error {
	list, err := xml.Marshal(done)
	if err != nil {
		return err
	}
	var result struct {
		XMLName xml.Name
		ETag    string
		Code    string
		Message string
	}
	query := url.Values{"uploadId": {upload}}
	err = b.exchange(ctx, request{method: http.MethodPost, name: name, query: query, body: inMemory(list)}, &result)
	if err == nil && (result.XMLName.Local == "Error" || result.ETag == "") {
		err = fmt.Errorf("put the parts of %s together: %s: %s", name, result.Code, result.Message)
	}
	return err
}

// abort gives an upload up, also when the caller has.
func (b *Bucket) abort(ctx context.Context, name, upload string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	answer, err := b.send(ctx, request{method: http.MethodDelete, name: name, query: url.Values{"uploadId": {upload}}})
	if err == nil {
		_ = answer.Body.Close() // it is empty
	}
	// What cannot be given up now is left to the bucket's own rule for unfinished uploads; the first error says more
	// than this one.
}

// exchange sends a request and reads its answer, which is a small document.
func (b *Bucket) exchange(ctx context.Context, r request, into any) error {
	answer, err := b.send(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // was read, or failed
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err == nil {
		err = xml.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", r.method, r.name, err)
	}
	return nil
}

// section is a part of a file that can be read again and again.
type section struct {
	file     *os.File
	at, size int64
}

func (s section) open() io.Reader { return io.NewSectionReader(s.file, s.at, s.size) }
func (s section) length() int64   { return s.size }

// inMemory is a small body.
type inMemory []byte

func (m inMemory) open() io.Reader { return bytes.NewReader(m) }
func (m inMemory) length() int64   { return int64(len(m)) }
