package webhook

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// maxURL bounds a receiver's URL.
const maxURL = 2048

// CheckURL says whether a sink may deliver to a URL, as things are now, and returns the URL in the form to keep. check
// judges its host: an outbound.Dialer's Check. Errors: an invalid-field problem at url.
func CheckURL(ctx context.Context, raw string, check func(ctx context.Context, host string) error) (*url.URL, error) {
	u, err := parseURL(raw)
	if err != nil {
		return nil, err
	}
	if err := check(ctx, u.Hostname()); err != nil {
		return nil, refuse("%v", err)
	}
	return u, nil
}

func refuse(format string, args ...any) error { return problem.At("url", format, args...) }

// parseURL takes URLs that everybody reads in the same way: no user, no fragment, no escapes in the host.
func parseURL(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, refuse("is longer than %d characters", maxURL)
	}
	for _, c := range []byte(raw) {
		if c <= ' ' || c >= 0x7f || c == '\\' {
			return nil, refuse("has a space, a backslash or a character beyond printable ASCII: write it " +
				"percent-encoded")
		}
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		// The cause repeats the URL, which may hold a token.
		return nil, refuse("is no URL: write it as https://host/path")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, refuse("must begin with https:// or http://")
	case u.Opaque != "" || u.Host == "" || u.Hostname() == "":
		return nil, refuse("names no host: write it as %s://host/path", u.Scheme)
	case u.User != nil:
		return nil, refuse("has a user or password before the host: deliveries are signed instead; leave it out")
	case strings.Contains(raw, "#"):
		return nil, refuse("has a fragment (#…), which is never sent: leave it out")
	case strings.ContainsRune(authority(raw), '%'):
		return nil, refuse("has a percent sign in its host: write its characters plainly")
	case strings.HasPrefix(u.Host, "[") && !strings.Contains(u.Hostname(), ":"):
		return nil, refuse("has brackets around what is no IPv6 address")
	}
	if err := checkPort(u); err != nil {
		return nil, err
	}
	if u.Path == "" {
		u.Path = "/"
	}
	u.Host = strings.ToLower(u.Host)
	return u, nil
}

// authority is the part of a URL between // and the path, as it was written.
func authority(raw string) string {
	_, rest, _ := strings.Cut(raw, "//")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

func checkPort(u *url.URL) error {
	port := u.Port()
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return refuse("has a colon without a port: leave it out")
		}
		return nil
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return refuse("has a port that is no number between 1 and 65535")
	}
	return nil
}
