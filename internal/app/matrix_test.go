package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/tallystick/tallystick/api"
	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/store"
)

var allScopes = []string{"ingest", "read", "audit", "billing", "admin"}

// operation is one documented method of one path.
type operation struct {
	method, pattern, scope string
	path                   string // of something of acme's
	param                  string // what stands for the variable in it
}

// operations are those of the published document, whatever they are. Each must say what scope it needs.
func operations(t *testing.T, named map[string]string) (out []operation) {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`/([a-z-]+)/\{(\w+)\}`)
	for _, pattern := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		path, param := pattern, ""
		if m := variable.FindStringSubmatch(pattern); m != nil {
			param = "acme-thing" // a new kind of object is nobody's until the test makes one
			if known, ok := named[m[1]]; ok {
				param = known
			}
			path = strings.Replace(pattern, "{"+m[2]+"}", param, 1)
		}
		ops := doc.Paths.Value(pattern).Operations()
		for _, method := range slices.Sorted(maps.Keys(ops)) {
			scope, _ := ops[method].Extensions["x-scope"].(string)
			if !slices.Contains(append([]string{"none", "operator", "own-admin", "own-or-all"}, allScopes...), scope) {
				t.Errorf("%s %s does not document who may call it: x-scope is %q", method, pattern, scope)
			}
			out = append(out, operation{method, pattern, scope, path, param})
		}
	}
	return out
}

// lets reports whether a key of the tenant with these scopes may do it.
func (o *operation) lets(scopes []string) bool {
	switch o.scope {
	case "none":
		return true
	case "operator":
		return false
	case "own-admin", "own-or-all":
		return slices.Contains(scopes, "admin")
	}
	return slices.Contains(scopes, o.scope) || slices.Contains(scopes, "admin")
}

// scopeSets are all that a key can have.
func scopeSets() (out [][]string) {
	for bits := 1; bits < 1<<len(allScopes); bits++ {
		var set []string
		for i, scope := range allScopes {
			if bits&(1<<i) != 0 {
				set = append(set, scope)
			}
		}
		out = append(out, set)
	}
	return out
}

// matrix is a server with two tenants. Everything of acme's has acme in its name, and nothing of bolt's has.
type matrix struct {
	*testing.T
	server *Server
	keys   map[string]map[string]string // tenant, scopes → token
	named  map[string]string            // the last segment before a variable → something of acme's
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	settings := testSettings(t)
	settings.Sinks.AllowPrivateAddresses = true
	m := &matrix{T: t, server: mustStart(t, settings), keys: map[string]map[string]string{}, named: map[string]string{}}
	ctx := context.Background()
	operator := connect(t, m.server, testRootKey)
	for _, id := range []string{"acme", "bolt"} {
		made, err := operator.CreateTenant(ctx, client.NewTenant{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		c := connect(t, m.server, made.APIKey)
		m.keys[id] = map[string]string{}
		for _, scopes := range scopeSets() {
			key, err := c.CreateAPIKey(ctx, client.NewAPIKey{Name: id + "-key", Scopes: scopes})
			if err != nil {
				t.Fatal(err)
			}
			m.keys[id][fmt.Sprint(scopes)] = key.Secret
		}
		if id == "acme" {
			m.furnish(c)
		}
	}
	return m
}

// furnish gives acme one of everything that a path can name.
func (m *matrix) furnish(c *client.Client) {
	m.Helper()
	ctx := context.Background()
	_, errMeter := c.CreateMeter(ctx, client.Meter{Slug: "acme_calls", Aggregation: "sum"})
	_, errEvent := c.SendEvent(ctx, &client.Event{ID: "acme-event", Meter: "acme_calls", Customer: "acme-customer",
		Quantity: "1"})
	event, errRead := c.Event(ctx, "acme-event")
	if err := errors.Join(errMeter, errEvent, errRead); err != nil {
		m.Fatal(err)
	}
	period := event.Time.UTC().Format("2006-01")
	adjustment, err := c.CreateAdjustment(ctx,
		client.NewAdjustment{Meter: "acme_calls", Customer: "acme-customer", Period: period, Amount: "1",
			Reason: "acme's"})
	if err != nil {
		m.Fatal(err)
	}
	spare, err := c.CreateAPIKey(ctx, client.NewAPIKey{Name: "acme-spare", Scopes: []string{"read"}})
	if err != nil {
		m.Fatal(err)
	}
	m.named = map[string]string{"tenants": "acme", "api-keys": spare.ID, "meters": "acme_calls", "events": "acme-event",
		"adjustments": adjustment.ID, "periods": period, "plans": "acme-plan", "customers": "acme-customer",
		"audit-events": "aud_1",
		"ledgers":      "acme"}
	m.named["sinks"] = m.sink()
	for _, put := range []operation{{method: "PUT", path: "/v1/plans/acme-plan"},
		{method: "PUT", path: "/v1/customers/acme-customer/plan"}} {
		body := `{}`
		if strings.HasSuffix(put.path, "/plan") {
			body = `{"plan":"acme-plan"}`
		}
		if status, answer := m.call(put, m.keys["acme"]["[admin]"], nil, body); status != http.StatusOK {
			m.Fatalf("%s: %d %s", put.path, status, answer)
		}
	}
}

// sink makes one of acme's, whose receiver is nowhere.
func (m *matrix) sink() string {
	m.Helper()
	post := operation{method: "POST", path: "/v1/sinks"}
	status, answer := m.call(post, m.keys["acme"]["[admin]"], nil,
		`{"name":"acme-sink","kind":"webhook","url":"http://127.0.0.1:1/"}`)
	var sink struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &sink); err != nil || status != http.StatusCreated {
		m.Fatalf("a sink: %d %s: %v", status, answer, err)
	}
	return sink.ID
}

func (m *matrix) call(o operation, token string, header map[string]string, body string) (int, string) {
	m.Helper()
	r, err := http.NewRequestWithContext(m.Context(), o.method, m.server.URL()+o.path, strings.NewReader(body))
	if err != nil {
		m.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		m.Fatal(err)
	}
	var from io.Reader = resp.Body
	if resp.Header.Get("Content-Type") == httpkit.MediaEvents {
		from = io.LimitReader(from, 1) // a stream has no end
	}
	answer, err := io.ReadAll(from)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		m.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// denied expects one of the statuses.
func (m *matrix) denied(who string, o operation, token string, header map[string]string, statuses ...int) {
	m.Helper()
	body := ""
	if o.method != http.MethodGet {
		body = "{}"
	}
	if status, answer := m.call(o, token, header, body); !slices.Contains(statuses, status) {
		m.Errorf("%s: %s %s: %d, want one of %v: %s", who, o.method, o.pattern, status, statuses, answer)
	}
}

func (m *matrix) head(id string) (head string) {
	m.Helper()
	err := m.server.store.View(context.Background(), id, func(v store.View) error {
		head = fmt.Sprintf("%+v", v.Head())
		return nil
	})
	if err != nil {
		m.Fatal(err)
	}
	return head
}

// Every documented route × every set of scopes × one's own tenant and another, and the operator: what must be denied
// is, nothing of it leaves a trace in the ledger, and what is allowed is not denied.
func TestWhoMayDoWhatIsWhatTheDocumentSays(t *testing.T) {
	leaves(t)
	m := newMatrix(t)
	defer mustStop(t, m.server)
	defer http.DefaultClient.CloseIdleConnections()
	all := operations(t, m.named)
	acme, bolt, operator := m.head("acme"), m.head("bolt"), m.head("_operator")
	for _, o := range all {
		if o.scope != "none" {
			m.denyStrangers(o)
		}
		for scopes, token := range m.keys["acme"] {
			if !o.lets(strings.Fields(strings.Trim(scopes, "[]"))) {
				m.denied("acme's key of "+scopes, o, token, nil, 403)
			}
		}
	}
	if got := []string{m.head("acme"), m.head("bolt"),
		m.head("_operator")}; !slices.Equal(got, []string{acme, bolt, operator}) {
		t.Errorf("what was denied changed a ledger: %v", got)
	}
	for _, o := range all {
		for scopes, token := range m.keys["bolt"] {
			m.foreign(o, scopes, token)
		}
	}
	if got := m.head("acme"); got != acme {
		t.Errorf("another tenant changed acme's ledger: %s", got)
	}
	for _, o := range all {
		for scopes, token := range m.keys["acme"] {
			if o.lets(strings.Fields(strings.Trim(scopes, "[]"))) {
				m.allowed("acme's key of "+scopes, o, token, nil)
			}
		}
		m.allowed("the operator", o, testRootKey, map[string]string{"Tally-Tenant": "acme"})
	}
}

// Every set of scopes that may send tries to correct: those with billing or admin may, for the others a correction is
// forbidden, alone and in a batch, whether its target exists or not, and the ledger stays as it is.
func TestWhoMayCorrect(t *testing.T) {
	leaves(t)
	m := newMatrix(t)
	defer mustStop(t, m.server)
	defer http.DefaultClient.CloseIdleConnections()
	post := operation{method: "POST", path: "/v1/events"}
	for n, scopes := range scopeSets() {
		if !slices.Contains(scopes, "ingest") && !slices.Contains(scopes, "admin") {
			continue // the route is not theirs
		}
		may := slices.Contains(scopes, "billing") || slices.Contains(scopes, "admin")
		token, before := m.keys["acme"][fmt.Sprint(scopes)], m.head("acme")
		for _, target := range []string{"acme-event", "nothing"} {
			fix := fmt.Sprintf(`{"id":"fix-%d","corrects":%q,"quantity":"0.5","reason":"r"}`, n, target)
			status, answer := m.call(post, token, nil, fix)
			_, batch := m.call(post, token, nil, "["+fix+"]")
			switch {
			case !may && (status != 403 || !strings.Contains(answer, `"code":"forbidden"`) ||
				!strings.Contains(batch, `"code":"forbidden"`)):
				t.Errorf("%v may correct %s: %d %s, in a batch %s", scopes, target, status, answer, batch)
			case may && (status == 403 || strings.Contains(batch, "forbidden")):
				t.Errorf("%v may not correct %s: %d %s, in a batch %s", scopes, target, status, answer, batch)
			}
		}
		if changed := m.head("acme") != before; changed != may {
			t.Errorf("%v: the ledger changed %t", scopes, changed)
		}
	}
}

// denyStrangers tries everyone whom no scope would help.
func (m *matrix) denyStrangers(o operation) {
	m.Helper()
	admin := m.keys["bolt"]["[admin]"]
	flipped := "0"
	if strings.HasSuffix(admin, "0") {
		flipped = "1"
	}
	m.denied("nobody", o, "", nil, 401)
	m.denied("a made up key", o, "tk_acme.00000000000000000000_"+strings.Repeat("0", 64), nil, 401)
	m.denied("a wrong secret", o, admin[:len(admin)-1]+flipped, nil, 401)
	m.denied("bolt in acme's name", o, admin, map[string]string{"Tally-Tenant": "acme"}, 403)
	m.denied("bolt in nobody's name", o, admin, map[string]string{"Tally-Tenant": "nobody"}, 403)
	m.denied("the operator in nobody's name", o, testRootKey, map[string]string{"Tally-Tenant": "nobody"}, 404)
	m.denied("the operator in its own", o, testRootKey, map[string]string{"Tally-Tenant": "_operator"}, 404)
	if slices.Contains(allScopes, o.scope) {
		m.denied("the operator in no name", o, testRootKey, nil, 400)
	}
	m.denied("a foreign page", o, m.keys["acme"]["[admin]"], map[string]string{"Origin": "https://evil.test"}, 403)
	m.denied("a foreign page of the operator", o, testRootKey,
		map[string]string{"Tally-Tenant": "acme", "Origin": "https://evil.test"}, 403)
}

// made are objects whose names the server makes or keeps for one tenant: another's are not there. Other names, such as
// a month, are everybody's to use in their own ledger.
var made = []string{"tenants", "ledgers", "api-keys", "meters", "events", "adjustments", "sinks"}

// foreign has a key of bolt ask for acme's.
func (m *matrix) foreign(o operation, scopes, token string) {
	m.Helper()
	who := "bolt's key of " + scopes
	if !o.lets(strings.Fields(strings.Trim(scopes, "[]"))) {
		m.denied(who, o, token, nil, 403)
		return
	}
	body := ""
	if o.method != http.MethodGet {
		body = "{}"
	}
	status, answer := m.call(o, token, nil, body)
	switch {
	case status == 401 || status == 403:
		m.Errorf("%s is kept out: %s %s: %d %s", who, o.method, o.pattern, status, answer)
	case o.param == "" || !slices.Contains(made, strings.Split(o.pattern, "/")[2]):
	// an empty body may be refused before anything is looked for
	case status != 404 && (status != 422 || o.method == http.MethodGet):
		m.Errorf("%s finds acme's: %s %s: %d %s", who, o.method, o.pattern, status, answer)
	}
	if o.scope != "none" && strings.Contains(strings.ReplaceAll(answer, o.param, ""), "acme") {
		m.Errorf("%s sees something of acme's: %s %s: %d %s", who, o.method, o.pattern, status, answer)
	}
}

func (m *matrix) allowed(who string, o operation, token string, header map[string]string) {
	m.Helper()
	if status, answer := m.call(o, token, header, ""); status == 401 || status == 403 {
		m.Errorf("%s is kept out: %s %s: %d %s", who, o.method, o.pattern, status, answer)
	}
}
