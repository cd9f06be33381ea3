package yield

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// Given one processor and a goroutine that never blocks, when something comes in for a connection, then whoever waits for it runs
// before the other has stepped aside three times: it is seen at the first, and at most what became ready with it runs before.
func TestCallersRunBesideWorkThatNeverBlocks(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	here, there := connect(t)
	for round := range 200 {
		var read atomic.Bool
		waiting := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			close(waiting)
			_, err := there.Read(make([]byte, 1))
			read.Store(true)
			done <- err
		}()
		<-waiting
		ToNetwork() // the other waits for the network now
		if _, err := here.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			ToNetwork()
		}
		if !read.Load() {
			t.Fatalf("round %d: nobody read what had come in", round)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func connect(t *testing.T) (here, there net.Conn) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if here, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = here.Close() })
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = there.Close() })
	return here, there
}

// Many at once neither wait for one another nor keep more pipes than there is room for.
func TestManyYieldAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			for range 50 {
				ToNetwork()
			}
		})
	}
	all.Wait()
	if n := len(pipes); n == 0 || n > kept {
		t.Errorf("%d pipes are kept", n)
	}
}

// A pipe that broke is dropped, and nobody waits for it.
func TestABrokenPipeIsDropped(t *testing.T) {
	for len(pipes) > 0 {
		<-pipes
	}
	p := take()
	if err := p.w.Close(); err != nil {
		t.Fatal(err)
	}
	pipes <- p
	ToNetwork()
	if len(pipes) != 0 {
		t.Error("it was kept")
	}
	ToNetwork()
	if len(pipes) != 1 {
		t.Error("no new one was made")
	}
}

// Without a file descriptor to be had it still steps aside and returns.
func TestWithoutPipes(t *testing.T) {
	for len(pipes) > 0 {
		<-pipes
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	ToNetwork()
	made := len(pipes)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if made != 0 {
		t.Error("a pipe was made of nothing")
	}
}
