package amount

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The encodings are stored for good: a change here is a change of format.
func TestBinaryForm(t *testing.T) {
	for _, c := range []struct{ number, hex string }{
		{"0", "00"},
		{"1", "01"},
		{"63", "3f"},
		{"127", "7f"},
		{"128", "8000"},
		{"1000", "8368"},
		{"16511", "bfff"},
		{"16512", "c0808101"},
		{"-1", "d001"},
		{"-128", "d08001"},
		{"0.5", "c105"},
		{"-0.5", "d105"},
		{"1.5", "c10f"},
		{"100.25", "c2a94e"},
		{"0.001", "c301"},
		{"0.000000000001", "cc01"},
		{"1000000", "c0c0843d"},
		{"99999999999999999999999999.999999999999", "ccffffffffffc788c589f491b6a88baaa6bb9601"},
	} {
		a, err := Parse(c.number)
		if err != nil {
			t.Fatal(err)
		}
		got := AppendBinary([]byte("x"), a)
		if got[0] != 'x' || hex.EncodeToString(got[1:]) != c.hex {
			t.Errorf("%s is %x, want %s", c.number, got[1:], c.hex)
		}
		back, n, err := ReadBinary(append(got[1:], 0xff))
		if back != a || n != len(c.hex)/2 || err != nil {
			t.Errorf("%s reads back as %v, %d, %v", c.number, back, n, err)
		}
	}
}

func TestReadBinaryRefuses(t *testing.T) {
	for _, c := range []struct {
		why, hex string
		err      error
	}{
		{"nothing", "", errTruncated},
		{"half a pair", "80", errTruncated},
		{"no varint", "c0", errTruncated},
		{"an open varint", "c08081", errTruncated},
		{"zero scaled", "c000", errNotCanonical},
		{"minus zero", "d000", errNotCanonical},
		{"1 scaled", "c001", errNotCanonical},
		{"16511 scaled", "c0ff8001", errNotCanonical},
		{"5.0", "c132", errNotCanonical},
		{"-5.0", "d132", errNotCanonical},
		{"a padded varint", "d08100", errNotCanonical},
		{"scale 13", "cd01", errNotCanonical},
		{"scale 15, negative", "df01", errNotCanonical},
		{"an unassigned tag", "e0", errNotCanonical},
		{"the last tag", "ff01", errNotCanonical},
		{"10^26 at scale 0", "c0" + varintHex("100000000000000000000000000"), ErrRange},
		{"128 bits", "cc" + strings.Repeat("ff", 18) + "03", ErrRange},
		{"2^127-1", "cc" + strings.Repeat("ff", 18) + "01", ErrRange},
		{"an endless varint", "cc" + strings.Repeat("80", 40), ErrRange},
	} {
		src, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		if a, n, err := ReadBinary(src); a != Zero || n != 0 || err != c.err {
			t.Errorf("%s: %v, %d, %v; want %v", c.why, a, n, err, c.err)
		}
	}
}

// varintHex is the varint of an integer of at most 38 digits.
func varintHex(digits string) string {
	hi, lo := count([]byte(digits))
	return hex.EncodeToString(appendVarint(nil, hi, lo))
}

func TestBinaryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := amounts().Draw(t, "a")
		enc := AppendBinary(nil, a)
		if len(enc) > 1+maxVarint {
			t.Fatalf("%v takes %d bytes", a, len(enc))
		}
		got, n, err := ReadBinary(append(enc, rapid.Byte().Draw(t, "next")))
		if got != a || n != len(enc) || err != nil {
			t.Fatalf("%v is %x, which reads as %v, %d, %v", a, enc, got, n, err)
		}
		for cut := range enc {
			if _, _, err := ReadBinary(enc[:cut]); err != errTruncated {
				t.Fatalf("%x cut to %d bytes: %v", enc, cut, err)
			}
		}
	})
}

func FuzzBinary(f *testing.F) {
	for _, s := range []string{"00", "7f", "8000", "bfff", "c0808101", "d001", "c10f", "c132", "c000", "e0",
		"ccffffffffffc788c589f491b6a88baaa6bb9601", "c0"} {
		src, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src, int64(0), uint64(0))
	}
	f.Add([]byte{}, int64(-1), uint64(1<<63))
	f.Fuzz(func(t *testing.T, src []byte, hi int64, lo uint64) {
		if a, n, err := ReadBinary(src); err == nil {
			if enc := AppendBinary(nil, a); !bytes.Equal(enc, src[:n]) {
				t.Fatalf("%x reads as %v, which is %x", src[:n], a, enc)
			}
			if _, ok := fromBig(toBig(a)); !ok {
				t.Fatalf("%x reads as %v, out of range", src[:n], a)
			}
		}
		a, ok := fromBig(toBig(Amount{hi, lo}))
		if !ok {
			return
		}
		enc := AppendBinary(nil, a)
		if got, n, err := ReadBinary(enc); got != a || n != len(enc) || err != nil {
			t.Fatalf("%v is %x, which reads as %v, %d, %v", a, enc, got, n, err)
		}
	})
}
