package loopback

import (
	"net"
	"testing"
)

// Given two servers of one process, when each listens on the address that it was given, then the addresses differ and
// come back after a server ended.
func TestAddressesCanBeListenedOnAgain(t *testing.T) {
	first, second := Address(), Address()
	if first == second {
		t.Fatalf("both have %s", first)
	}
	for range 2 {
		for _, address := range []string{first, second} {
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			if got := l.Addr().String(); got != address {
				t.Errorf("listens on %s, want %s", got, address)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestProcessesDoNotShareAHost(t *testing.T) {
	seen := map[string]int{}
	for _, pid := range []int{1, 255, 256, 65535, 65536, 1<<22 - 1} {
		h := host(pid).String()
		if other, ok := seen[h]; ok || !host(pid).IsLoopback() {
			t.Errorf("process %d has %s, as %d has", pid, h, other)
		}
		seen[h] = pid
	}
}
