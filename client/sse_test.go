package client

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// blocksOf is a slow second opinion on what a stream says.
func blocksOf(text string) (out []streamEvent) {
	text = strings.TrimPrefix(text, "\xef\xbb\xbf")
	lines := regexp.MustCompile("\r\n|\r|\n").Split(text, -1)
	var block []string
	for _, line := range lines[:len(lines)-1] { // the last has no end
		if line != "" {
			block = append(block, line)
			continue
		}
		if len(block) > 0 {
			out = append(out, blockOf(block))
		}
		block = nil
	}
	return out
}

func blockOf(lines []string) (e streamEvent) {
	hasData := false
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "id" && !strings.Contains(value, "\x00"):
			e.id = value
		case name == "event":
			e.name = value
		case name == "data" && hasData:
			e.data += "\n" + value
		case name == "data":
			e.data, hasData = value, true
		case name == "retry" && regexp.MustCompile(`^[0-9]+$`).MatchString(value):
			if n, err := strconv.ParseUint(value, 10, 31); err == nil {
				e.retry = time.Duration(n) * time.Millisecond
			}
		}
	}
	return e
}

func FuzzStreamEvents(f *testing.F) {
	for _, seed := range []string{
		"id: 1\nevent: usage.recorded\ndata: {\"seq\":1}\n\n", "retry: 1000\nid: 7\n\n: heartbeat\nid: 8\n\n",
		"data: a\r\ndata: b\r\n\r\nid: 9\r\r", "\xef\xbb\xbfdata:x\n\n", "data\ndata\n\n", "id: a\x00b\nid\n\n",
		"data: cut off\n", "retry: x\nretry: 99999999999999999999\n\n", "\r\n\n\r", ":\n\nfoo: bar\n\n",
		"\r\xef\xbb\xbfid:1\n\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want := blocksOf(text)
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(text),
			"byte by byte": iotest.OneByteReader(strings.NewReader(text))} {
			in := newEventReader(r, 1<<20)
			for i := 0; ; i++ {
				e, err := in.next()
				if err != nil {
					if !errors.Is(err, io.EOF) || i != len(want) {
						t.Fatalf("%s: %v after %d of %d blocks of %q", name, err, i, len(want), text)
					}
					break
				}
				if i >= len(want) || e != want[i] {
					t.Fatalf("%s: block %d of %q is %+v, want %+v", name, i, text, e, want)
				}
			}
		}
	})
}

// A block has a bound, whatever it is made of.
func TestAStreamedEventIsBounded(t *testing.T) {
	for _, text := range []string{"data: " + strings.Repeat("x", 100), strings.Repeat("data: x\n", 100),
		strings.Repeat(": x\n", 100)} {
		_, err := newEventReader(bytes.NewReader([]byte(text)), 64).next()
		if !errors.Is(err, ErrAnswerTooLarge) {
			t.Errorf("%.20q…: %v", text, err)
		}
	}
}
