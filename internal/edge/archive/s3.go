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

// Bucket keeps archives in a bucket. A handful of requests are all that is needed of the protocol, so the client is our
// own: the usual ones bring a hundred packages and retry in ways that hide what happened.
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
	// Credentials say who asks. Required; see FindCredentials.
	Credentials Source
	// PartBytes is the size from which on an object goes up in parts, and of each part. Default 64 MiB; at least
	// MinPart.
	PartBytes int64
	// Pause is the wait before a request is sent again, longer each time. Default 200 ms.
	Pause time.Duration
	// Client makes the requests. Default: one of its own with a generous timeout.
	Client *http.Client
	// Now is the clock that requests are signed by. Default: time.Now.
	Now func() time.Time
}

// transferTimeout bounds one request: five gigabytes over a slow line.
const transferTimeout = 2 * time.Hour

// defaultRegion is where Amazon began.
const defaultRegion = "us-east-1"

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
	if o.Credentials == nil {
		return nil, errors.New("archive in a bucket: credentials are needed")
	}
	if o.PartBytes == 0 {
		o.PartBytes = defaultPart
	}
	if o.PartBytes < MinPart {
		return nil, fmt.Errorf("archive in a bucket: parts of %d bytes are too small: at least %d",
			o.PartBytes, MinPart)
	}
	if o.Pause == 0 {
		o.Pause = 200 * time.Millisecond
	}
	if o.Region == "" {
		o.Region = defaultRegion
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

// Put uploads a file, a large one in parts. The server checks every byte against the hash in the signature; an object
// appears whole or not at all.
func (b *Bucket) Put(ctx context.Context, name string, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() > b.o.PartBytes {
		return b.putParts(ctx, name, file, info.Size())
	}
	answer, err := b.send(ctx, request{method: http.MethodPut, name: name, body: section{file, 0, info.Size()}})
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// Open downloads an object into a file that goes when it is closed; the error is os.ErrNotExist when there is none.
func (b *Bucket) Open(ctx context.Context, name string) (retention.Blob, error) {
	answer, err := b.send(ctx, request{method: http.MethodGet, name: name})
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

// request is what is asked of the bucket. It can be sent again.
type request struct {
	method, name string
	query        url.Values
	body         content // nil: none
}

// content is a body that can be read again: once for its hash, and once for each attempt.
type content interface {
	open() io.Reader
	length() int64
}

// hash is what the signature says of the body, in hex.
func (r *request) hash() (string, error) {
	sum := sha256.New()
	if r.body != nil {
		n, err := io.Copy(sum, r.body.open())
		if err == nil && n != r.body.length() {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// send makes a request, again when the server is busy, the connection broke or the credentials have expired: all of
// them can be repeated.
func (b *Bucket) send(ctx context.Context, q request) (*http.Response, error) {
	sum, err := q.hash()
	if err != nil {
		return nil, err
	}
	var last error
	for attempt := range attempts {
		if attempt > 0 {
			select {
			case <-time.After(time.Duration(attempt*attempt) * b.o.Pause):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		who, err := b.o.Credentials.Credentials(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s %s: credentials: %w", q.method, q.name, err)
		}
		answer, err := b.try(ctx, q, who, sum)
		switch {
		case err != nil:
			if last = err; ctx.Err() != nil {
				return nil, err
			}
			continue
		case answer.StatusCode == http.StatusOK || answer.StatusCode == http.StatusNoContent:
			return answer, nil
		}
		var again bool
		if again, last = b.refused(q, who, answer); !again {
			return nil, last
		}
	}
	return nil, last
}

// refused says why the server did not do it, and whether it may if it is asked again.
func (b *Bucket) refused(q request, who Credentials, answer *http.Response) (again bool, err error) {
	said, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // the status says enough
	_ = answer.Body.Close()
	err = fmt.Errorf("%s %s: %s: %s", q.method, q.name, answer.Status, strings.TrimSpace(string(said)))
	if source, ok := b.o.Credentials.(*renewed); ok && strings.Contains(string(said), "<Code>ExpiredToken</Code>") {
		source.forget(who)
		return true, err
	}
	if answer.StatusCode == http.StatusNotFound {
		return false, fmt.Errorf("%w: %w", os.ErrNotExist, err)
	}
	return answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests, err
}

func (b *Bucket) try(ctx context.Context, q request, who Credentials, sum string) (*http.Response, error) {
	body, size := io.Reader(http.NoBody), int64(0) // an empty file has a length, too
	if q.body != nil && q.body.length() > 0 {
		body, size = q.body.open(), q.body.length()
	}
	u := *b.endpoint
	path := strings.TrimSuffix(u.Path, "/") + "/" + b.prefix + "/" + q.name
	u.Path, u.RawPath, u.RawQuery = path, escapePath(path), canonicalQuery(q.query)
	r, err := http.NewRequestWithContext(ctx, q.method, u.String(), body)
	if err != nil {
		return nil, err
	}
	r.ContentLength = size
	b.sign(r, u.RawPath, who, sum)
	return b.o.Client.Do(r)
}

// canonicalQuery writes a query as signatures want it: sorted, and spaces as %20.
func canonicalQuery(q url.Values) string { return strings.ReplaceAll(q.Encode(), "+", "%20") }

// sign adds an AWS Signature Version 4 over method, path, query, host, time and the hash of the content.
func (b *Bucket) sign(r *http.Request, path string, who Credentials, sum string) {
	now := b.o.Now().UTC()
	stamp, day := now.Format("20060102T150405Z"), now.Format("20060102")
	headers := [][2]string{{"host", r.URL.Host}, {"x-amz-content-sha256", sum}, {"x-amz-date", stamp}}
	if who.SessionToken != "" {
		headers = append(headers, [2]string{"x-amz-security-token", who.SessionToken})
	}
	for _, h := range headers[1:] {
		r.Header.Set(h[0], h[1])
	}
	s := signing{method: r.Method, path: path, query: r.URL.RawQuery, headers: headers, sum: sum,
		stamp: stamp, day: day,
		region: b.o.Region}
	r.Header.Set("Authorization", s.authorization(who))
}

// signing is what a signature covers. Headers are in order of their names.
type signing struct {
	method, path, query, sum, stamp, day, region string
	headers                                      [][2]string
}

// authorization is the header that proves who asks.
func (s *signing) authorization(who Credentials) string {
	var canonical strings.Builder
	var names []string
	for _, h := range s.headers {
		canonical.WriteString(h[0] + ":" + h[1] + "\n")
		names = append(names, h[0])
	}
	signed := strings.Join(names, ";")
	request := sha256.Sum256([]byte(strings.Join([]string{s.method, s.path, s.query, canonical.String(), signed, s.sum},
		"\n")))
	scope := s.day + "/" + s.region + "/s3/aws4_request"
	key := []byte("AWS4" + who.SecretKey)
	for _, part := range []string{s.day, s.region, "s3", "aws4_request"} {
		key = keyed(key, part)
	}
	signature := keyed(key, "AWS4-HMAC-SHA256\n"+s.stamp+"\n"+scope+"\n"+hex.EncodeToString(request[:]))
	return "AWS4-HMAC-SHA256 Credential=" + who.AccessKey + "/" + scope + ", SignedHeaders=" + signed + ", Signature=" +
		hex.EncodeToString(signature)
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
