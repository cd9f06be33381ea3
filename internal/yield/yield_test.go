package yield

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// Given one processor and a goroutine that never blocks, when something comes in for another, then it is read before
// the first has stepped aside a hundred times, which takes far less than the ten milliseconds after which the runtime
// looks by itself. In a few rounds the machine may have taken the reader's thread away before it waits; without the
// network poller nearly all would fail.
func TestCallersRunBesideWorkThatNeverBlocks(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	there, here, err := os.Pipe() // what is written is there at once, unlike on a network
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = there.Close(), here.Close() }()
	const rounds = 200
	unread := 0
	for range rounds {
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
		for i := 0; i < 100 && !read.Load(); i++ {
			ToNetwork()
		}
		if !read.Load() {
			unread++
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if unread > rounds/4 {
		t.Errorf("in %d of %d rounds nobody read what had come in", unread, rounds)
	}
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

// Without an available file descriptor it still steps aside and returns.
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
