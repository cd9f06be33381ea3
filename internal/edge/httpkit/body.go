package httpkit

import (
	"errors"
	"io"
	"mime"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/service/gate"
)

const (
	// MaxBody is the largest bound that ReadBody takes: of a body as sent and decompressed.
	MaxBody = 16 << 20
	// DefaultMaxBody bounds what Body takes; the largest that makes sense is a tenant's list of origins.
	DefaultMaxBody = 1 << 20
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
func (x *Exchange) take(n int64) error {
	if !x.handler.budget.take(n) {
		return problem.New(problem.Busy, "too many request bodies at once: nothing of this one was read or kept")
	}
	x.charge += n
	return nil
}

// Body returns the body of a write, as its route takes it. It is empty when there is none. A request key that is
// malformed and parameters that the route does not take are refused with it.
func (x *Exchange) Body() ([]byte, error) {
	if x.body != nil {
		return x.body, nil
	}
	if !x.route.Parameters {
		if err := x.NoQuery(); err != nil {
			return nil, err
		}
	}
	if _, err := x.RequestKey(request.MaxKey); err != nil {
		return nil, err
	}
	if x.r.ContentLength == 0 {
		return nil, nil // nothing has no type
	}
	media, err := x.MediaType()
	if err != nil {
		return nil, err
	}
	types, limit := x.route.Bodies, x.route.MaxBody
	if types == nil {
		types = justJSON
	}
	if limit == 0 {
		limit = DefaultMaxBody
	}
	if !slices.Contains(types, media) {
		return nil, problem.New(problem.UnsupportedMedia, "send Content-Type: %s, not %s",
			strings.Join(types, " or "), media)
	}
	return x.ReadBody(limit)
}

// ReadBody returns the whole body, decompressed, of at most limit bytes, which is MaxBody or less, and counts it
// against the caller's rate. The memory is the handler's for good: events share it, so it is never used again.
func (x *Exchange) ReadBody(limit int64) ([]byte, error) {
	body, err := x.decompressed(limit)
	if err != nil {
		return nil, err
	}
	x.received()
	if x.route.Who == gate.Anyone { // nobody whose rate it could count against
		return body, nil
	}
	err = x.Caller.TakeBytes(x.r.Context(), len(body))
	x.ShowStanding()
	return body, err
}

func (x *Exchange) decompressed(limit int64) ([]byte, error) {
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
	return nil, problem.New(problem.UnsupportedMedia,
		"Content-Encoding must be gzip, zstd or identity, and one of them alone")
}

// readAll reads to the end. expected is the length if it is known, else negative.
func (x *Exchange) readAll(from io.Reader, expected, limit int64) ([]byte, error) {
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

// grow doubles the buffer, up to one byte past the limit: that byte distinguishes a body that is too large from one
// that just fits.
func (x *Exchange) grow(buf []byte, expected, limit int64) ([]byte, error) {
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
	return problem.New(problem.TooLarge, "the body may have at most %d bytes (%d MiB), also after decompression",
		limit, limit>>20)
}

func (x *Exchange) unreadable(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && x.handler.draining.Load():
		return problem.Wrap(problem.Timeout, err,
			"the server stops, and the body did not arrive in time; nothing was kept, sending it again is safe")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem.Wrap(problem.Timeout, err,
			"the body did not arrive within %s; nothing was kept, sending it again is safe",
			x.handler.options.ReadTimeout)
	}
	return problem.Wrap(problem.Malformed, err, "the body could not be read to its end; nothing was kept")
}

var gzipReaders sync.Pool // of *gzip.Reader

func (x *Exchange) readGzip(limit int64) ([]byte, error) {
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
	return nil, problem.Wrap(problem.Malformed, err,
		"the body is not gzip, as its Content-Encoding says; nothing was kept")
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
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(MaxBody),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
})

func (x *Exchange) readZstd(limit int64) ([]byte, error) {
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
		return nil, problem.Wrap(problem.Malformed, err,
			"the body is not zstd, as its Content-Encoding says; nothing was kept")
	}
	if err := x.take(int64(cap(body))); err != nil {
		return nil, err
	}
	return body, nil
}

// MediaType returns the body's content type without parameters, in lower case; absent is JSON, and so is a form where
// the route takes none: curl -d and others say that it is one when nobody says what it is. A charset other than UTF-8
// is refused.
func (x *Exchange) MediaType() (string, error) {
	header := x.r.Header["Content-Type"]
	if len(header) == 0 || len(header) == 1 && header[0] == MediaJSON {
		return MediaJSON, nil
	}
	if len(header) == 1 && header[0] == MediaForm && !slices.Contains(x.route.Bodies, MediaForm) {
		return MediaJSON, nil
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
