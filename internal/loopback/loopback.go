// Package loopback gives servers that a test or the comparison starts addresses that stay theirs while they are down:
// nobody else listens on the process's own address of the loopback network, and no client is given one of its ports to
// call from.
package loopback

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
)

// The ports lie below those that systems give to clients.
const firstPort, lastPort = 20000, 29999

var taken atomic.Int64 // ports of this process

// Address returns a host and port that no other call in any process that runs returns.
func Address() string {
	port := firstPort + int(taken.Add(1)) - 1
	if port > lastPort {
		panic("loopback: no port is left") // ten thousand servers in one test binary
	}
	return Join(host(os.Getpid()).String(), port)
}

// Join is the opposite of Split.
func Join(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// host spreads processes over 127.64.0.0/10, all of which is the machine itself on Linux. Numbers of processes end
// below 2^22.
func host(pid int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(64 | pid>>16&63), byte(pid >> 8), byte(pid)})
}

// Split returns the parts of an address that Address returned.
func Split(address string) (host string, port int) {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		panic(fmt.Sprintf("loopback: %v", err))
	}
	return a.Addr().String(), int(a.Port())
}
