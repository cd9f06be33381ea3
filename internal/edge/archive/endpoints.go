package archive

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The endpoints that give out credentials, as Amazon has them.
const (
	containerHost    = "http://169.254.170.2"
	metadataHost     = "http://169.254.169.254"
	metadataTokenTTL = "21600"
)

// webIdentity assumes the role that AWS_ROLE_ARN names with the token in AWS_WEB_IDENTITY_TOKEN_FILE.
func (f *finder) webIdentity() (Source, error) {
	file, role := f.getenv("AWS_WEB_IDENTITY_TOKEN_FILE"), f.getenv("AWS_ROLE_ARN")
	switch {
	case file == "":
		return nil, nil
	case role == "":
		return nil, errors.New("AWS_WEB_IDENTITY_TOKEN_FILE is set: AWS_ROLE_ARN must name the role")
	}
	return f.assuming(role, f.getenv("AWS_ROLE_SESSION_NAME"), file), nil
}

// assuming is a role that is assumed anew, with the token as it is then, before its credentials expire.
func (f *finder) assuming(role, session, tokenFile string) Source {
	if session == "" {
		session = "tallystick"
	}
	endpoint := f.getenv("AWS_ENDPOINT_URL_STS")
	if endpoint == "" {
		endpoint = f.getenv("AWS_ENDPOINT_URL")
	}
	if endpoint == "" {
		endpoint = "https://sts." + f.region + ".amazonaws.com"
	}
	return f.renewed(func(ctx context.Context) (Credentials, error) {
		token, err := secretFile(tokenFile)
		if err != nil {
			return Credentials{}, fmt.Errorf("read the web identity token: %w", err)
		}
		return f.assume(ctx, endpoint, url.Values{"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"},
			"RoleArn":         {role},
			"RoleSessionName": {session}, "WebIdentityToken": {token}})
	})
}

func (f *finder) assume(ctx context.Context, endpoint string, form url.Values) (Credentials, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(endpoint, "/")+"/",
		strings.NewReader(form.Encode()))
	if err != nil {
		return Credentials{}, fmt.Errorf("assume the role: %w", err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/xml")
	body, err := ask(f.client, r)
	if err != nil {
		return Credentials{}, fmt.Errorf("assume the role %s: %w", form.Get("RoleArn"), err)
	}
	var in struct {
		Credentials struct {
			AccessKeyID     string    `xml:"AccessKeyId"`
			SecretAccessKey string    `xml:"SecretAccessKey"`
			SessionToken    string    `xml:"SessionToken"`
			Expiration      time.Time `xml:"Expiration"`
		} `xml:"AssumeRoleWithWebIdentityResult>Credentials"`
	}
	if err := xml.Unmarshal(body, &in); err != nil {
		return Credentials{}, errors.New("assume the role: the answer is not the XML that was expected")
	}
	c := in.Credentials
	return Credentials{c.AccessKeyID, c.SecretAccessKey, c.SessionToken, c.Expiration}, nil
}

// container asks the endpoint that ECS and EKS give to a container.
func (f *finder) container() (Source, error) {
	address := f.getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if relative := f.getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); relative != "" {
		address = containerHost + relative
	}
	if address == "" {
		return nil, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !ofThisHost(u.Hostname())) {
		return nil, errors.New("AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, or an address of this host")
	}
	return f.renewed(func(ctx context.Context) (Credentials, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return Credentials{}, err
		}
		token := f.getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN")
		if file := f.getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); file != "" {
			if token, err = secretFile(file); err != nil {
				return Credentials{}, fmt.Errorf("read the container's token: %w", err)
			}
		}
		if token != "" {
			r.Header.Set("Authorization", token)
		}
		return f.askJSON(r, "ask the container's endpoint")
	}), nil
}

// ofThisHost are the addresses that a token may go to without encryption: this machine, and those that a container's
// host answers on.
func ofThisHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && (ip.IsLoopback() || ip.Equal(net.ParseIP("169.254.170.2")) ||
		ip.Equal(net.ParseIP("169.254.170.23")) ||
		ip.Equal(net.ParseIP("fd00:ec2::23")))
}

// machine asks the metadata service of an EC2 machine, version 2: a session's token first, then the role, then its
// credentials. It is the last place to look, so that it is asked at once whether it has any.
func (f *finder) machine(ctx context.Context) (Source, error) {
	none := errors.New("no credentials for the bucket: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, " +
		"or AWS_ROLE_ARN with AWS_WEB_IDENTITY_TOKEN_FILE, or run where a container or a machine has a role")
	if strings.EqualFold(f.getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		return nil, none
	}
	host := f.getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT")
	if host == "" {
		host = metadataHost
	}
	host = strings.TrimSuffix(host, "/")
	s := f.renewed(func(ctx context.Context) (Credentials, error) { return f.metadata(ctx, host) })
	first, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	if _, err := s.Credentials(first); err != nil {
		return nil, fmt.Errorf("%w (%w)", none, err)
	}
	return s, nil
}

func (f *finder) metadata(ctx context.Context, host string) (Credentials, error) {
	const what = "ask the machine's metadata"
	request := func(method, path, header, value string) (*http.Request, error) {
		r, err := http.NewRequestWithContext(ctx, method, host+path, nil)
		if err == nil {
			r.Header.Set(header, value)
		}
		return r, err
	}
	text := func(method, path, header, value string) (string, error) {
		r, err := request(method, path, header, value)
		if err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
		body, err := ask(f.near, r)
		if err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
		return strings.TrimSpace(string(body)), nil
	}
	const roles, session = "/latest/meta-data/iam/security-credentials/", "X-Aws-Ec2-Metadata-Token"
	token, err := text(http.MethodPut, "/latest/api/token", "X-Aws-Ec2-Metadata-Token-Ttl-Seconds", metadataTokenTTL)
	if err != nil {
		return Credentials{}, err
	}
	names, err := text(http.MethodGet, roles, session, token)
	if err != nil {
		return Credentials{}, err
	}
	role, _, _ := strings.Cut(names, "\n")
	if role == "" {
		return Credentials{}, errors.New("the machine has no role")
	}
	r, err := request(http.MethodGet, roles+url.PathEscape(strings.TrimSpace(role)), session, token)
	if err != nil {
		return Credentials{}, fmt.Errorf("%s: %w", what, err)
	}
	return f.askJSON(r, what)
}

// askJSON reads credentials as containers and machines give them.
func (f *finder) askJSON(r *http.Request, what string) (Credentials, error) {
	body, err := ask(f.near, r)
	if err != nil {
		return Credentials{}, fmt.Errorf("%s: %w", what, err)
	}
	var in struct {
		Code            string
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string
		Token           string
		Expiration      time.Time
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Credentials{}, fmt.Errorf("%s: the answer is not the JSON that was expected", what)
	}
	if in.Code != "" && in.Code != "Success" {
		return Credentials{}, fmt.Errorf("%s: %s", what, in.Code)
	}
	return Credentials{in.AccessKeyID, in.SecretAccessKey, in.Token, in.Expiration}, nil
}

// ask returns the body of a 200. Of other answers only the status is shown: a body may repeat the token that was sent.
func ask(c *http.Client, r *http.Request) ([]byte, error) {
	answer, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // was read, or does not matter
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", r.URL.Host, answer.Status)
	}
	return body, nil
}
