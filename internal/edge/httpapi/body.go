package httpapi

import (
	"errors"
	"io"
	"mime"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/tallystick/tallystick/internal/core/problem"
)

const (
	// maxEventsBody is the contract's bound of a body of events, as sent and decompressed.
	maxEventsBody = 16 << 20
	// maxSetupBody bounds all other bodies; the largest that makes sense is a tenant's list of origins.
	maxSetupBody = 1 << 20
	// firstRead is how much is set aside on the word of Content-Length alone; past it the buffer grows with what
	// arrives, so that a caller cannot hold memory by announcing bytes and not sending them.
	firstRead = 1 << 20
	// maxWindow is the back-reference window that every zstd decoder must support (RFC 8878); more is refused.
	maxWindow = 8 << 20
)

// budget is the bytes that all bodies together may still take. It never waits: a server that is short of memory should
// say so at once.
type budget struct{ free atomic.Int64 }

func (b *budget) take(n int64) bool {
	if b.free.Add(-n) >= 0 {
		return true
	}
	b.free.Add(n)
	return false
}

func (b *budget) give(n int64) {
	if n != 0 {
		b.free.Add(n)
	}
}

// take charges the request; all of it is given back when the request ends.
func (x *exchange) take(n int64) error {
	if !x.s.budget.take(n) {
		return problem.New(problem.Busy, "too many request bodies at once: nothing of this one was read or kept")
	}
	x.charge += n
	return nil
}

// readBody returns the whole body, decompressed, of at most limit bytes, and counts it against the caller's rate. The
// memory is the caller's for good: events share it, so it is never used again.
func (x *exchange) readBody(limit int64) ([]byte, error) {
	body, err := x.decompressed(limit)
	if err != nil {
		return nil, err
	}
	if h := x.handed(); h != nil {
		h.received.Store(true)
	}
	err = x.caller.TakeBytes(x.r.Context(), len(body))
	x.tellStanding()
	return body, err
}

func (x *exchange) decompressed(limit int64) ([]byte, error) {
	if x.r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	switch encoding := x.r.Header["Content-Encoding"]; {
	case len(encoding) == 0, len(encoding) == 1 && strings.EqualFold(encoding[0], "identity"):
		return x.readAll(x.r.Body, x.r.ContentLength, limit)
	case len(encoding) == 1 && strings.EqualFold(encoding[0], "gzip"):
		return x.readGzip(limit)
	case len(encoding) == 1 && strings.EqualFold(encoding[0], "zstd"):
		return x.readZstd(limit)
	}
	return nil, problem.New(problem.UnsupportedMedia, "Content-Encoding must be gzip, zstd or identity, and one of them alone")
}

// readAll reads to the end. expected is the length if it is known, else negative.
func (x *exchange) readAll(from io.Reader, expected, limit int64) ([]byte, error) {
	size := expected
	if size < 0 {
		size = 4 << 10
	}
	size = min(size, firstRead)
	if err := x.take(size); err != nil {
		return nil, err
	}
	buf := make([]byte, 0, size)
	for {
		if int64(len(buf)) == expected {
			return buf, nil
		}
		if len(buf) == cap(buf) {
			var err error
			if buf, err = x.grow(buf, expected, limit); err != nil {
				return nil, err
			}
		}
		n, err := from.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			return nil, tooLarge(limit)
		}
		if errors.Is(err, io.EOF) && (expected < 0 || int64(len(buf)) == expected) {
			return buf, nil
		}
		if err != nil {
			return nil, x.unreadable(err)
		}
	}
}

// grow doubles the buffer, up to one byte past the limit: that byte tells a body that is too large from one that just
// fits.
func (x *exchange) grow(buf []byte, expected, limit int64) ([]byte, error) {
	size := min(2*int64(cap(buf)), limit+1)
	if expected >= 0 {
		size = min(size, expected)
	}
	if err := x.take(size - int64(cap(buf))); err != nil {
		return nil, err
	}
	return append(make([]byte, 0, size), buf...), nil
}

func tooLarge(limit int64) error {
	return problem.New(problem.TooLarge, "the body may have at most %d bytes (%d MiB), also after decompression", limit, limit>>20)
}

func (x *exchange) unreadable(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && x.s.draining.Load():
		return problem.Wrap(problem.Timeout, err, "the server stops, and the body did not arrive in time; nothing was kept, sending it again is safe")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem.Wrap(problem.Timeout, err, "the body did not arrive within %s; nothing was kept, sending it again is safe", x.s.options.ReadTimeout)
	}
	return problem.Wrap(problem.Malformed, err, "the body could not be read to its end; nothing was kept")
}

var gzipReaders sync.Pool // of *gzip.Reader

func (x *exchange) readGzip(limit int64) ([]byte, error) {
	packed := &packedBody{from: x.r.Body, left: limit}
	r, ok := gzipReaders.Get().(*gzip.Reader)
	if !ok {
		r = new(gzip.Reader)
	}
	defer gzipReaders.Put(r)
	err := r.Reset(packed)
	var body []byte
	if err == nil {
		body, err = x.readAll(r, -1, limit)
	}
	switch {
	case err == nil:
		return body, nil
	case packed.failed != nil:
		return nil, x.unreadable(packed.failed)
	case packed.left < 0:
		return nil, tooLarge(limit)
	case problem.Is(err, problem.TooLarge), problem.Is(err, problem.Busy):
		return nil, err
	}
	return nil, problem.Wrap(problem.Malformed, err, "the body is not gzip, as its Content-Encoding says; nothing was kept")
}

// packedBody counts the compressed bytes and keeps the connection's error apart from the decompressor's.
type packedBody struct {
	from   io.Reader
	left   int64
	failed error
}

func (p *packedBody) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	if p.left -= int64(n); p.left < 0 {
		return 0, io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.EOF) {
		p.failed = err
	}
	return n, err
}

// unzstd is shared: it keeps no state between bodies, and at most one per core decompresses at a time. What those few
// have in the making is outside the budget; what they made is charged.
var unzstd = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxEventsBody),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
})

func (x *exchange) readZstd(limit int64) ([]byte, error) {
	packed, err := x.readAll(x.r.Body, x.r.ContentLength, limit)
	if err != nil {
		return nil, err
	}
	body, err := unzstd().DecodeAll(packed, nil)
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), int64(len(body)) > limit:
		return nil, tooLarge(limit)
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, problem.New(problem.TooLarge, "the zstd window may have at most %d bytes", maxWindow)
	case err != nil:
		return nil, problem.Wrap(problem.Malformed, err, "the body is not zstd, as its Content-Encoding says; nothing was kept")
	}
	if err := x.take(int64(cap(body))); err != nil {
		return nil, err
	}
	return body, nil
}

// formType is what curl -d and others send when they are told no type. No form is ever expected here, so it is read as
// JSON.
const formType = "application/x-www-form-urlencoded"

// mediaType returns the content type without parameters, in lower case; absent is JSON. A charset other than UTF-8 is
// not JSON.
func (x *exchange) mediaType() (string, error) {
	header := x.r.Header["Content-Type"]
	if len(header) == 0 || len(header) == 1 && (header[0] == "application/json" || header[0] == formType) {
		return "application/json", nil
	}
	media, params, err := mime.ParseMediaType(header[0])
	if err != nil || len(header) > 1 {
		return "", problem.New(problem.UnsupportedMedia, "the header Content-Type cannot be understood")
	}
	if charset, given := params["charset"]; given && !strings.EqualFold(charset, "utf-8") {
		return "", problem.New(problem.UnsupportedMedia, "the charset must be utf-8")
	}
	return media, nil
}
