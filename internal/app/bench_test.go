package app

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/load"
)

func runBench(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Run(context.Background(), append([]string{"bench"}, args...), &o, &e)
	return code, o.String(), e.String()
}

func TestBenchProvesTheTotalsOfItsOwnServer(t *testing.T) {
	code, out, errOut := runBench(t, "--events", "3000", "--batch", "50", "--connections", "3", "--tenants", "2",
		"--customers", "40", "--duplicates", "0.1")
	if code != exitOK || !strings.Contains(out, "3000 events in ") ||
		!strings.Contains(out, "each equal to what was sent") {
		t.Errorf("exit %d\n%s\n%s", code, out, errOut)
	}
	code, out, errOut = runBench(t, "--duration", "1ns", "--batch", "1", "--connections", "2", "--json")
	var r load.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitOK || !r.Proved || r.Requests != 2 ||
		r.Accepted != 2 {
		t.Errorf("exit %d, %v\n%s\n%s", code, err, out, errOut)
	}
}

func TestBenchIsUsedWrong(t *testing.T) {
	t.Setenv(rootKeyVariable, "")
	for args, says := range map[string]string{
		"--url http://192.0.2.1:8080 --key k":  "--allow-remote",
		"--url http://bench.example --key k":   "--allow-remote",
		"--url http://127.0.0.1:1 --events 1":  "operator's key",
		"--events 1 --duration 1s":             "either",
		"--events 0":                           "either",
		"--batch 0":                            "start at 1",
		"--batch 10001":                        "batch",
		"--duplicates 1":                       "duplicates",
		"--url 127.0.0.1:8080 --allow-remote=": "--allow-remote",
	} {
		code, _, errOut := runBench(t, strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(errOut, says) {
			t.Errorf("%s: exit %d: %s", args, code, errOut)
		}
	}
}

func TestBenchFailsWithoutAServer(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out bytes.Buffer
	code := Run(ctx, []string{"bench", "--url", "http://127.0.0.1:1", "--key", "k", "--events", "1"}, &out, &out)
	if code != exitFailed {
		t.Errorf("exit %d: %s", code, out.String())
	}
}

func TestLoopback(t *testing.T) {
	for text, want := range map[string]bool{
		"http://127.0.0.1:8080": true, "http://[::1]:80": true, "http://localhost:8080": true,
		"https://127.9.9.9": true,
		"http://10.0.0.1":   false, "http://localhost.example.com": false, "http://127.0.0.1.example.com": false,
		"http://": false, ":": false,
	} {
		if isLoopback(text) != want {
			t.Errorf("%s: %t", text, !want)
		}
	}
}
