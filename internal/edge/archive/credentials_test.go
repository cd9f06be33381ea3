package archive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// environment is one that a test makes up. Nothing of the machine's own is seen.
func environment(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func find(t *testing.T, vars map[string]string, now func() time.Time) (Source, error) {
	t.Helper()
	if vars["AWS_EC2_METADATA_SERVICE_ENDPOINT"] == "" {
		vars["AWS_EC2_METADATA_DISABLED"] = "true"
	}
	return FindCredentials(ctx, FindOptions{Getenv: environment(vars), Now: now})
}

// given wants credentials by their id and session.
func given(t *testing.T, s Source, err error, id, session string) {
	t.Helper()
	if err != nil {
		t.Error(err)
		return
	}
	c, err := s.Credentials(ctx)
	if err != nil || c.AccessKey != id || c.SecretKey != "secret of "+id || c.SessionToken != session {
		t.Errorf("%s, %v, want %s", c, err, id)
	}
}

func file(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

const sharedCredentials = `# of the team
[default]
aws_access_key_id = plain
aws_secret_access_key = secret of plain

[ night ]
aws_access_key_id=night
aws_secret_access_key = secret of night
aws_session_token = dream
`

const sharedConfig = `[default]
region = eu-central-1
s3 =
  aws_access_key_id = nested
[profile night]
aws_access_key_id = overruled
[profile half]
aws_access_key_id = half
[profile chained]
role_arn = arn:aws:iam::1:role/x
source_profile = default
[profile sso]
sso_start_url = https://example.com
[profile pod]
role_arn = arn:aws:iam::1:role/pod
web_identity_token_file = TOKEN
[profile silent]
region = eu-central-1
`

func TestCredentialsOfTheEnvironmentAndTheSharedFiles(t *testing.T) {
	shared := map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file(t, sharedCredentials), "AWS_CONFIG_FILE": file(t,
		sharedConfig)}
	with := func(more ...string) map[string]string {
		out := map[string]string{}
		for k, v := range shared {
			out[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	s, err := find(t, with("AWS_ACCESS_KEY_ID", "env", "AWS_SECRET_ACCESS_KEY", "secret of env", "AWS_SESSION_TOKEN",
		"s"), nil)
	given(t, s, err, "env", "s")
	s, err = find(t, with(), nil)
	given(t, s, err, "plain", "")
	s, err = find(t, with("AWS_PROFILE", "night"), nil)
	given(t, s, err, "night", "dream")
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".aws"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".aws", "credentials"), []byte(sharedCredentials), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = find(t, map[string]string{"HOME": home}, nil)
	given(t, s, err, "plain", "")
	for name, vars := range map[string]map[string]string{
		"AWS_SECRET_ACCESS_KEY": with("AWS_ACCESS_KEY_ID", "alone"),
		`no profile "nobody"`:   with("AWS_PROFILE", "nobody"),
		"needs both":            with("AWS_PROFILE", "half"),
		"role_arn, which is":    with("AWS_PROFILE", "chained"),
		"sso_start_url":         with("AWS_PROFILE", "sso"),
		"AWS_ROLE_ARN":          with("AWS_WEB_IDENTITY_TOKEN_FILE", "t"),
		"AWS_ACCESS_KEY_ID":     with("AWS_PROFILE", "silent"),
		"must be https":         {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.com/x"},
	} {
		if _, err := find(t, vars, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// issuer is a server that gives out credentials which live for an hour of its own clock, in any of the ways.
type issuer struct {
	*httptest.Server
	now     time.Time
	asked   int
	away    bool
	refused string // a token that it does not take
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{now: time.Date(2026, 11, 15, 2, 10, 0, 0, time.UTC)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("Action") != "AssumeRoleWithWebIdentity" ||
			r.FormValue("RoleArn") != "arn:aws:iam::1:role/pod" ||
			r.FormValue("RoleSessionName") != "tallystick" ||
			r.Header.Get("Authorization") != "" {
			t.Errorf("%v", r.Form)
		}
		i.answer(w, r.FormValue("WebIdentityToken"),
			`<AssumeRoleWithWebIdentityResponse xmlns="urn:sts"><AssumeRoleWithWebIdentityResult>
			<Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey>
			<SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials>
			</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`)
	})
	const asJSON = `{"Code":"Success","AccessKeyId":"%s","SecretAccessKey":"%s","Token":"%s","Expiration":"%s"}`
	mux.HandleFunc("GET /container", func(w http.ResponseWriter, r *http.Request) {
		i.answer(w,
			r.Header.Get("Authorization"), asJSON)
	})
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds") == "" {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = fmt.Fprint(w, "session")
	})
	mux.HandleFunc("GET /latest/meta-data/iam/security-credentials/{role}",
		func(w http.ResponseWriter, r *http.Request) {
			if r.PathValue("role") != "pod role" || r.Header.Get("X-Aws-Ec2-Metadata-Token") != "session" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			i.answer(w, "machine", asJSON)
		})
	mux.HandleFunc("GET /latest/meta-data/iam/security-credentials/{$}", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Aws-Ec2-Metadata-Token") != "session" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprint(w, "pod role\nanother")
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) answer(w http.ResponseWriter, token, format string) {
	i.asked++
	if i.away || token == i.refused {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "the token %s is bad", token)
		return
	}
	id := fmt.Sprint("given", i.asked)
	_, _ = fmt.Fprintf(w, format, id, "secret of "+id, "session of "+token, i.now.Add(time.Hour).Format(time.RFC3339))
}

// Each of the ways gives credentials, keeps them, renews them before they expire, and lives with a server that is away
// meanwhile.
func TestCredentialsAreRenewedBeforeTheyExpire(t *testing.T) {
	token, pod := file(t, "pod\n"), file(t,
		"[profile pod]\nrole_arn = arn:aws:iam::1:role/pod\nweb_identity_token_file = ")
	for name, way := range map[string]func(i *issuer) (vars map[string]string, session string){
		"web identity": func(i *issuer) (map[string]string, string) {
			return map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn:aws:iam::1:role/pod",
				"AWS_ENDPOINT_URL_STS": i.URL}, "pod"
		},
		"a profile with a web identity": func(i *issuer) (map[string]string, string) {
			content, err := os.ReadFile(pod)
			if err != nil {
				t.Fatal(err)
			}
			return map[string]string{"AWS_CONFIG_FILE": file(t, string(content)+token+"\n"), "AWS_PROFILE": "pod",
				"AWS_ENDPOINT_URL_STS": i.URL}, "pod"
		},
		"a container": func(i *issuer) (map[string]string, string) {
			return map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": i.URL + "/container",
				"AWS_CONTAINER_AUTHORIZATION_TOKEN": "ecs"}, "ecs"
		},
		"a container with a file": func(i *issuer) (map[string]string, string) {
			return map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": i.URL + "/container",
				"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": token}, "pod"
		},
		"a machine": func(i *issuer) (map[string]string, string) {
			return map[string]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT": i.URL}, "machine"
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIssuer(t)
			vars, session := way(i)
			s, err := find(t, vars, func() time.Time { return i.now })
			for range 2 {
				given(t, s, err, "given1", "session of "+session)
			}
			i.now = i.now.Add(time.Hour - refreshBefore)
			given(t, s, err, "given2", "session of "+session)
			i.now, i.away = i.now.Add(time.Hour-time.Minute), true
			given(t, s, err, "given2", "session of "+session)
			i.now = i.now.Add(time.Minute)
			if _, err := s.Credentials(ctx); err == nil || !strings.Contains(err.Error(), "403") {
				t.Errorf("expired credentials of a server that is away: %v", err)
			}
			i.away = false
			given(t, s, err, fmt.Sprint("given", i.asked+1), "session of "+session)
		})
	}
}

// What is configured and refused is an error that shows neither the token nor what the server said about it.
func TestARefusalShowsNoSecret(t *testing.T) {
	i := newIssuer(t)
	i.refused = "a-secret-token"
	s, err := find(t, map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": file(t, i.refused),
		"AWS_ROLE_ARN":         "arn:aws:iam::1:role/pod",
		"AWS_ENDPOINT_URL_STS": i.URL}, func() time.Time { return i.now })
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Credentials(ctx); err == nil || strings.Contains(err.Error(), i.refused) {
		t.Errorf("%v", err)
	}
	c := Credentials{AccessKey: "id", SecretKey: "hidden", SessionToken: "hidden"}
	if all := fmt.Sprintf("%v %+v %s %#v", c, c, c, c); strings.Contains(all, "hidden") {
		t.Errorf("shown as %s", all)
	}
}

func TestAMachineWithoutMetadata(t *testing.T) {
	h := httptest.NewServer(http.NotFoundHandler())
	defer h.Close()
	_, err := find(t, map[string]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT": h.URL}, nil)
	if err == nil || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v", err)
	}
}

// Given a bucket that says that a token has expired, whatever the clock here says, then new ones are asked for and the
// request is sent again.
func TestATokenThatTheServerCallsExpired(t *testing.T) {
	i := newIssuer(t)
	who, err := find(t, map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": i.URL + "/container",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN": "ecs"},
		func() time.Time { return i.now })
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		checkSignature(t, r, map[string]string{"given1": "secret of given1", "given2": "secret of given2"})
		id, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="), "/")
		if seen = append(seen, id); len(seen) == 1 {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(w, "<Error><Code>ExpiredToken</Code></Error>")
		}
	}))
	defer bucket.Close()
	b, err := NewBucket(BucketOptions{Location: "s3://cold", Endpoint: bucket.URL, Credentials: who,
		Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Put(ctx, "x", temp(t, []byte("content"))); err != nil {
		t.Fatal(err)
	}
	if strings.Join(seen, " ") != "given1 given2" {
		t.Errorf("asked as %v", seen)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := b.Put(ended, "x", temp(t, nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
