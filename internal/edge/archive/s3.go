package archive

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/service/retention"
)

// Bucket keeps archives in a bucket. Four requests are all that is needed of the protocol, so the client is our own: the usual ones
// bring a hundred packages and retry in ways that hide what happened.
type Bucket struct {
	endpoint *url.URL
	prefix   string // of keys, with the bucket
	o        BucketOptions
}

// BucketOptions say where a bucket is and who asks.
type BucketOptions struct {
	// Location is s3://bucket/prefix.
	Location string
	// Endpoint is the server, as https://host:port. Default: Amazon's of the region.
	Endpoint string
	// Region is part of every signature. Default "us-east-1".
	Region string
	// AccessKey, SecretKey and SessionToken are the credentials.
	AccessKey, SecretKey, SessionToken string
	// Client makes the requests. Default: one of its own with a generous timeout.
	Client *http.Client
	// Now is the clock that requests are signed by. Default: time.Now.
	Now func() time.Time
}

// transferTimeout bounds one request: five gigabytes over a slow line.
const transferTimeout = 2 * time.Hour

// attempts is how often a request is tried that the server could not serve at that moment.
const attempts = 4

// IsBucket reports whether a location names a bucket.
func IsBucket(location string) bool { return strings.HasPrefix(location, "s3://") }

// NewBucket checks the options; it sends nothing.
func NewBucket(o BucketOptions) (*Bucket, error) {
	u, err := url.Parse(o.Location)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("archive %q: write s3://bucket/prefix", o.Location)
	}
	if o.AccessKey == "" || o.SecretKey == "" {
		return nil, errors.New("archive in a bucket: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Endpoint == "" {
		o.Endpoint = "https://s3." + o.Region + ".amazonaws.com"
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: transferTimeout}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	endpoint, err := url.Parse(o.Endpoint)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && endpoint.Scheme != "http" {
		return nil, fmt.Errorf("archive endpoint %q: write https://host", o.Endpoint)
	}
	return &Bucket{endpoint, strings.TrimSuffix(u.Host+"/"+strings.Trim(u.Path, "/"), "/"), o}, nil
}

// Put uploads a file. The server checks the content against the hash in the signature; an object appears whole or not at all.
func (b *Bucket) Put(ctx context.Context, name string, file *os.File) error {
	sum := sha256.New()
	size, err := rewound(file, func() (int64, error) { return io.Copy(sum, file) })
	if err != nil {
		return err
	}
	answer, err := b.send(ctx, http.MethodPut, name, hex.EncodeToString(sum.Sum(nil)), func() (io.Reader, int64, error) {
		_, err := file.Seek(0, io.SeekStart)
		return file, size, err
	})
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// Open downloads an object into a file that goes when it is closed; the error is os.ErrNotExist when there is none.
func (b *Bucket) Open(ctx context.Context, name string) (retention.Blob, error) {
	nothing := sha256.Sum256(nil)
	answer, err := b.send(ctx, http.MethodGet, name, hex.EncodeToString(nothing[:]), func() (io.Reader, int64, error) { return nil, 0, nil })
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // was read to its end, or failed
	file, err := os.CreateTemp("", "tallystick-archive-*")
	if err != nil {
		return nil, err
	}
	remove := func() { _ = os.Remove(file.Name()) }
	n, err := io.Copy(file, answer.Body)
	if err == nil && answer.ContentLength >= 0 && n != answer.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		remove()
		return nil, errors.Join(fmt.Errorf("download %s: %w", name, err), file.Close())
	}
	return newBlob(file, remove)
}

func rewound(file *os.File, fn func() (int64, error)) (int64, error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	return fn()
}

// send makes a request, again when the server is busy or the connection broke: both requests can be repeated.
func (b *Bucket) send(ctx context.Context, method, name, sum string, body func() (io.Reader, int64, error)) (*http.Response, error) {
	var last error
	for attempt := range attempts {
		if attempt > 0 {
			select {
			case <-time.After(time.Duration(attempt*attempt) * 200 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		answer, err := b.try(ctx, method, name, sum, body)
		switch {
		case err != nil:
			if last = err; ctx.Err() != nil {
				return nil, err
			}
			continue
		case answer.StatusCode == http.StatusOK:
			return answer, nil
		}
		told, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // the status says enough
		_ = answer.Body.Close()
		last = fmt.Errorf("%s %s: %s: %s", method, name, answer.Status, strings.TrimSpace(string(told)))
		switch {
		case answer.StatusCode == http.StatusNotFound:
			return nil, fmt.Errorf("%w: %w", os.ErrNotExist, last)
		case answer.StatusCode < 500 && answer.StatusCode != http.StatusTooManyRequests:
			return nil, last
		}
	}
	return nil, last
}

func (b *Bucket) try(ctx context.Context, method, name, sum string, body func() (io.Reader, int64, error)) (*http.Response, error) {
	reader, size, err := body()
	if err != nil {
		return nil, err
	}
	if size == 0 {
		reader = http.NoBody // an empty file has a length, too
	} else {
		reader = io.NopCloser(reader) // the file is the caller's
	}
	u := *b.endpoint
	path := strings.TrimSuffix(u.Path, "/") + "/" + b.prefix + "/" + name
	u.Path, u.RawPath = path, escapePath(path)
	r, err := http.NewRequestWithContext(ctx, method, u.String(), reader)
	if err != nil {
		return nil, err
	}
	r.ContentLength = size
	b.sign(r, u.RawPath, sum)
	return b.o.Client.Do(r)
}

// sign adds an AWS Signature Version 4 over method, path, host, time and the hash of the content.
func (b *Bucket) sign(r *http.Request, path, sum string) {
	now := b.o.Now().UTC()
	stamp, day := now.Format("20060102T150405Z"), now.Format("20060102")
	headers := [][2]string{{"host", r.URL.Host}, {"x-amz-content-sha256", sum}, {"x-amz-date", stamp}}
	if b.o.SessionToken != "" {
		headers = append(headers, [2]string{"x-amz-security-token", b.o.SessionToken})
	}
	for _, h := range headers[1:] {
		r.Header.Set(h[0], h[1])
	}
	r.Header.Set("Authorization", b.authorization(r.Method, path, headers, sum, stamp, day))
}

// authorization is the header that proves who asks. Headers are in order of their names.
func (b *Bucket) authorization(method, path string, headers [][2]string, sum, stamp, day string) string {
	var canonical strings.Builder
	var names []string
	for _, h := range headers {
		canonical.WriteString(h[0] + ":" + h[1] + "\n")
		names = append(names, h[0])
	}
	signed := strings.Join(names, ";")
	request := sha256.Sum256([]byte(strings.Join([]string{method, path, "", canonical.String(), signed, sum}, "\n")))
	scope := day + "/" + b.o.Region + "/s3/aws4_request"
	key := []byte("AWS4" + b.o.SecretKey)
	for _, part := range []string{day, b.o.Region, "s3", "aws4_request"} {
		key = keyed(key, part)
	}
	signature := keyed(key, "AWS4-HMAC-SHA256\n"+stamp+"\n"+scope+"\n"+hex.EncodeToString(request[:]))
	return "AWS4-HMAC-SHA256 Credential=" + b.o.AccessKey + "/" + scope + ", SignedHeaders=" + signed + ", Signature=" + hex.EncodeToString(signature)
}

func keyed(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// escapePath writes all but unreserved characters and slashes in hex, as signatures want it.
func escapePath(path string) string {
	var out strings.Builder
	for i := range len(path) {
		c := path[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~/", c) >= 0 {
			out.WriteByte(c)
			continue
		}
		fmt.Fprintf(&out, "%%%02X", c)
	}
	return out.String()
}
