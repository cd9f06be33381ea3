package webhook

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/service/secrets"
)

// library finds what make deps installed into the checkout.
func library(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("../../../bin/tools/standardwebhooks-*/node_modules/standardwebhooks/package.json")
	if err != nil || len(found) != 1 {
		t.Fatalf("one standardwebhooks of npm is needed in bin/tools, found %d: run make deps (%v)", len(found), err)
	}
	folder, err := filepath.Abs(filepath.Join(found[0], "../../.."))
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// verifyInJavaScript returns what the library of npm makes of a delivery.
func verifyInJavaScript(t *testing.T, g got, secret secrets.Signing) (body string, err error) {
	t.Helper()
	headers := map[string]string{}
	for name := range g.header {
		headers[strings.ToLower(name)] = g.header.Get(name)
	}
	in, err := json.Marshal(map[string]any{"secret": secret.Reveal(), "headers": headers, "body": string(g.body)})
	if err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(t.Context(), "node", filepath.Join("testdata", "verify.js"), library(t))
	node.Stdin = bytes.NewReader(in)
	var out, complaint bytes.Buffer
	node.Stdout, node.Stderr = &out, &complaint
	node.Env = []string{"PATH=" + os.Getenv("PATH")}
	err = node.Run()
	if err != nil && !strings.Contains(complaint.String(), "WebhookVerificationError") {
		t.Fatalf("node: %v: %s", err, complaint.String())
	}
	return out.String(), err
}

func TestSignaturesVerifyInJavaScript(t *testing.T) {
	r := receive(t, plainHTTP, nil)
	old, fresh, stranger := newSecret(t), newSecret(t), newSecret(t)
	now := time.Now()
	both := secrets.Rotate([]secrets.Validity{{Secret: old}}, fresh, now, time.Hour)
	if err := carrier(t, options(plenty), r.URL, both...).Deliver(t.Context(), delivery()); err != nil {
		t.Fatal(err)
	}
	arrived := r.requests()[0]
	for _, s := range []secrets.Signing{fresh, old} {
		body, err := verifyInJavaScript(t, arrived, s)
		if err != nil {
			t.Fatal(err)
		}
		var ours, theirs any
		if json.Unmarshal(arrived.body, &ours) != nil || json.Unmarshal([]byte(body), &theirs) != nil {
			t.Fatalf("%s became %s", arrived.body, body)
		}
		if diff := cmp.Diff(ours, theirs); diff != "" {
			t.Error(diff)
		}
	}
	if body, err := verifyInJavaScript(t, arrived, stranger); err == nil {
		t.Errorf("a stranger's secret verifies: %s", body)
	}
	changed := arrived
	changed.body = bytes.Replace(arrived.body, []byte(`"3"`), []byte(`"4"`), 1)
	if body, err := verifyInJavaScript(t, changed, fresh); err == nil {
		t.Errorf("a changed body verifies: %s", body)
	}
	moved := arrived
	moved.header = arrived.header.Clone()
	moved.header.Set("Webhook-Id", "dlv_2")
	if body, err := verifyInJavaScript(t, moved, fresh); err == nil {
		t.Errorf("another id verifies: %s", body)
	}
}
