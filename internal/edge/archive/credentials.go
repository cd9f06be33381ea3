package archive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// Credentials say who asks for an object. They print as their id alone, so that no log shows the rest.
type Credentials struct {
	AccessKey, SecretKey, SessionToken string
	Expires                            time.Time // zero: never
}

// String shows the id and no secret.
func (c Credentials) String() string { return "credentials " + c.AccessKey }

// GoString shows as little as String.
func (c Credentials) GoString() string { return c.String() }

// Source gives the credentials that are in force now.
type Source interface {
	Credentials(ctx context.Context) (Credentials, error)
}

type fixed Credentials

func (f fixed) Credentials(context.Context) (Credentials, error) { return Credentials(f), nil }

// Fixed is the source of credentials that never change.
func Fixed(accessKey, secretKey, sessionToken string) Source {
	return fixed{AccessKey: accessKey, SecretKey: secretKey, SessionToken: sessionToken}
}

// FindOptions say where credentials are looked for. Zero values stand for the defaults.
type FindOptions struct {
	// Region is where roles are assumed, unless the environment names an endpoint. Default "us-east-1".
	Region string
	// Getenv reads the environment. Default: os.Getenv.
	Getenv func(string) string
	// Client asks for credentials. Default: ones that give up after ten seconds, and that use no proxy for what is
	// near.
	Client *http.Client
	// Now is the clock that expiry is judged by. Default: time.Now.
	Now func() time.Time
}

const (
	// findTimeout bounds one request for credentials.
	findTimeout = 10 * time.Second
	// metadataTimeout bounds the first request to a machine's metadata: where there is none, nobody answers.
	metadataTimeout = 2 * time.Second
	// refreshBefore is how long before they expire credentials are renewed; those that live shorter are renewed at each
	// use.
	refreshBefore = 5 * time.Minute
	// maxAnswer bounds what a server of credentials may say.
	maxAnswer = 1 << 20
)

// finder looks through one environment.
type finder struct {
	region string
	getenv func(string) string
	client *http.Client // for the token service
	near   *http.Client // for the endpoints of containers and machines
	now    func() time.Time
}

// FindCredentials finds where this process has its credentials from, in the order that Amazon's own programs look: the
// environment, a web identity, the profile of the shared files, a container's endpoint, and the machine's metadata.
// What is configured and broken is an error and not passed over. Credentials that expire are renewed before they do.
func FindCredentials(ctx context.Context, o FindOptions) (Source, error) {
	f := &finder{o.Region, o.Getenv, o.Client, o.Client, o.Now}
	if f.region == "" {
		f.region = defaultRegion
	}
	if f.getenv == nil {
		f.getenv = os.Getenv
	}
	if f.client == nil {
		f.client = asker(http.ProxyFromEnvironment)
		f.near = asker(nil)
	}
	if f.now == nil {
		f.now = time.Now
	}
	for _, look := range []func() (Source, error){f.environment, f.webIdentity, f.profile, f.container} {
		s, err := look()
		if err != nil {
			return nil, fmt.Errorf("credentials of the bucket: %w", err)
		}
		if s != nil {
			return s, nil
		}
	}
	return f.machine(ctx)
}

// asker makes a client that keeps no connection and follows nobody elsewhere with a token.
func asker(proxy func(*http.Request) (*url.URL, error)) *http.Client {
	return &http.Client{Timeout: findTimeout, Transport: &http.Transport{Proxy: proxy, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// environment is AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
func (f *finder) environment() (Source, error) {
	id, secret := f.getenv("AWS_ACCESS_KEY_ID"), f.getenv("AWS_SECRET_ACCESS_KEY")
	switch {
	case id == "" && secret == "":
		return nil, nil
	case id == "" || secret == "":
		return nil, errors.New("set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither")
	}
	return Fixed(id, secret, f.getenv("AWS_SESSION_TOKEN")), nil
}

// renewed asks anew before what it has expires.
type renewed struct {
	now   func() time.Time
	fetch func(ctx context.Context) (Credentials, error)

	mu   sync.Mutex // guards have, and is held while asking: one asks, the others wait for the answer
	have Credentials
}

func (f *finder) renewed(fetch func(ctx context.Context) (Credentials, error)) *renewed {
	return &renewed{now: f.now, fetch: fetch}
}

// Credentials implements Source. A renewal that fails does no harm while the old ones hold.
func (r *renewed) Credentials(ctx context.Context) (Credentials, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if r.have.AccessKey != "" && (r.have.Expires.IsZero() || now.Before(r.have.Expires.Add(-refreshBefore))) {
		return r.have, nil
	}
	fresh, err := r.fetch(ctx)
	switch {
	case err == nil && (fresh.AccessKey == "" || fresh.SecretKey == ""):
		err = errors.New("the answer has no credentials")
	case err == nil && !fresh.Expires.IsZero() && !now.Before(fresh.Expires):
		err = fmt.Errorf("the credentials that were given have expired at %s", fresh.Expires.UTC().Format(time.RFC3339))
	}
	if err == nil {
		r.have = fresh
		return fresh, nil
	}
	if r.have.AccessKey != "" && now.Before(r.have.Expires) {
		return r.have, nil
	}
	return Credentials{}, err
}

// forget makes the next use ask anew: a server said that these have expired.
func (r *renewed) forget(c Credentials) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.have.AccessKey == c.AccessKey && r.have.SessionToken == c.SessionToken {
		r.have = Credentials{}
	}
}

// secretFile reads a token from a file, which whoever rotates it replaces.
func secretFile(name string) (string, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("%s is empty", name)
	}
	return token, nil
}
