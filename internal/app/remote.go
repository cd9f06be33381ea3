package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/service/export"
	"github.com/tallystick/tallystick/internal/service/gate"
)

// keyVariable holds the API key of commands that ask a running server.
const keyVariable = "TALLYSTICK_KEY"

// remote is a running server that is asked to do what a command would do itself with the store.
type remote struct{ url, key, tenant string }

func urlFlag(c *cobra.Command, into *string) {
	c.Flags().StringVar(into, "url", "",
		"ask the server at this `URL` to do it while it serves; an admin key is in "+keyVariable)
	c.MarkFlagsMutuallyExclusive("url", "data")
	c.MarkFlagsMutuallyExclusive("url", "store")
}

// newRemote checks what was given; it sends nothing.
func newRemote(address, tenantID string) (*remote, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, wrongUse("--url %q: write http://host:port", address)
	}
	key := os.Getenv(keyVariable)
	if key == "" {
		return nil, wrongUse("--url needs an admin key of the tenant, or the operator's, in %s", keyVariable)
	}
	return &remote{strings.TrimSuffix(address, "/"), key, tenantID}, nil
}

// lines take what a streamed answer brings, by the name of its member.
type lines map[string]func(value []byte) error

// ask makes a request and takes its lines. An answer that ends without a result was cut off.
func (r *remote) ask(ctx context.Context, method, path string, body any, on lines) error {
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	q, err := http.NewRequestWithContext(ctx, method, r.url+path, content)
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+r.key)
	q.Header.Set("Accept", "application/x-ndjson, application/problem+json")
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	if r.tenant != "" {
		q.Header.Set(gate.TenantHeader, r.tenant)
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // was read, or failed
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
		return errors.Join(err, r.refusal(answer.Status, text))
	}
	return r.read(answer.Body, on)
}

func (r *remote) read(body io.Reader, on lines) error {
	in := bufio.NewReaderSize(body, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return errors.New("the answer was cut off: is the server still running?")
		}
		if err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(line, &members); err != nil || len(members) != 1 {
			return errors.New("the answer is not what a tallystick server says: is --url right?")
		}
		for name, value := range members {
			if name == "error" {
				return r.refusal("", value)
			}
			if take := on[name]; take != nil {
				if err := take(value); err != nil {
					return err
				}
			}
			if name == "result" {
				return nil
			}
		}
	}
}

// refusal is the server's problem as an error. That the operator's key names no tenant is for the command line to put
// right.
func (r *remote) refusal(status string, text []byte) error {
	var p struct {
		Code, Detail string
		Errors       []struct{ Path string }
	}
	if json.Unmarshal(text, &p) != nil || p.Code == "" {
		return fmt.Errorf("the server answered %s: is --url right?", status)
	}
	if r.tenant == "" && len(p.Errors) == 1 && p.Errors[0].Path == gate.TenantHeader {
		return wrongUse("%s holds the operator's key: name the tenant with --tenant", keyVariable)
	}
	return fmt.Errorf("the server refused: %s: %s", p.Code, p.Detail)
}

// progress shows the stages that the server reports, each with a bar of its own.
func (r *remote) progress(bar func(string) *progressBar) (take func([]byte) error, end func()) {
	var stage string
	shown := &progressBar{}
	end = func() { shown.end() }
	return func(value []byte) error {
		var p struct {
			Stage       string
			Done, Total uint64
		}
		if err := json.Unmarshal(value, &p); err != nil {
			return fmt.Errorf("read progress: %w", err)
		}
		if p.Stage != stage {
			shown.end()
			stage, shown = p.Stage, bar(p.Stage)
		}
		shown.set(p.Done, p.Total)
		return nil
	}, end
}

// Ledgers implements export.Source.
func (r *remote) Ledgers(ctx context.Context, f export.Filter) (out []export.Ledger, err error) {
	one := *r
	one.tenant = f.Tenant
	query := url.Values{}
	if f.Meter != "" {
		query.Set("meter", f.Meter)
	}
	err = one.ask(ctx, http.MethodGet, "/v1/ledgers?"+query.Encode(), nil, lines{"ledger": func(value []byte) error {
		var l struct {
			ID   string
			Head uint64 `json:"head_seq"`
		}
		err := json.Unmarshal(value, &l)
		out = append(out, export.Ledger{Tenant: l.ID, Head: l.Head})
		return err
	}})
	return out, err
}

// Rows implements export.Source.
func (r *remote) Rows(ctx context.Context, l *export.Ledger, after uint64, k export.Kind, f export.Filter,
	fn func(export.Row) error) (last uint64, err error) {
	query := url.Values{"rows": {string(k)}, "after_seq": {strconv.FormatUint(after, 10)},
		"until_seq": {strconv.FormatUint(l.Head, 10)}}
	for name, value := range map[string]string{"meter": f.Meter, "customer": f.Customer} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if f.From != nil {
		query.Set("from", f.From.String())
	}
	if f.To != nil {
		query.Set("to", f.To.String())
	}
	whole := *r
	whole.tenant = "" // the path names it, also the operator's own, which no header can
	err = whole.ask(ctx, http.MethodGet, "/v1/ledgers/"+url.PathEscape(l.Tenant)+"/rows?"+query.Encode(), nil, lines{
		"row": func(value []byte) error { return fn(export.Record(value)) },
		"result": func(value []byte) error {
			var end struct {
				Last uint64 `json:"last_seq"`
			}
			err := json.Unmarshal(value, &end)
			last = end.Last
			return err
		},
	})
	if err == nil && last <= after {
		err = fmt.Errorf("the server has no rows after %d of a ledger of %d: was it restored from a backup?", after,
			l.Head)
	}
	return last, err
}
