package secrets

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

var (
	keyA = bytes.Repeat([]byte{0xa1}, keySize)
	keyB = bytes.Repeat([]byte{0xb2}, keySize)
	sink = Owner{Tenant: "acme", Entity: "sink/snk_1"}
)

func ringOf(t testing.TB, raw ...[]byte) *Keyring {
	t.Helper()
	ring, err := newKeyring(raw)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func seal(t testing.TB, ring *Keyring, plain string, of Owner) []byte {
	t.Helper()
	sealed, err := ring.Seal([]byte(plain), of)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestWhatIsSealedOpensForItsOwnerAlone(t *testing.T) {
	ring := ringOf(t, keyA)
	sealed := seal(t, ring, "whsec_secret", sink)
	if plain, err := ring.Open(sealed, sink); err != nil || string(plain) != "whsec_secret" {
		t.Fatalf("%q, %v", plain, err)
	}
	for _, other := range []Owner{{"globex", "sink/snk_1"}, {"acme", "sink/snk_2"}, {"acmesink", "/snk_1"}, {"",
		"acmesink/snk_1"},
		{"acme\x0asink/snk_1", ""}, {"acm", "esink/snk_1"}, {}} {
		if plain, err := ring.Open(sealed, other); !errors.Is(err, ErrDamaged) {
			t.Errorf("%v opens it: %q, %v", other, plain, err)
		}
	}
}

// What was sealed stays readable: these bytes are of the first build that sealed.
func TestTheFormatOfASeal(t *testing.T) {
	const want = "01d6a18800aba09c90cccccccccccccccccccccccc06c8754" +
		"41f7b0a79485d87d57acf7c8c02225fce446b4195e1e54a12"
	ring := ringOf(t, keyA)
	ring.random = bytes.NewReader(bytes.Repeat([]byte{0xcc}, nonceSize))
	if got := fmt.Sprintf("%x", seal(t, ring, "whsec_secret", sink)); got != want {
		t.Errorf("sealed as %s", got)
	}
}

func TestSealsOfOneSecretDiffer(t *testing.T) {
	ring := ringOf(t, keyA)
	one, two := seal(t, ring, "the same", sink), seal(t, ring, "the same", sink)
	if bytes.Equal(one, two) || bytes.Equal(one[header:header+nonceSize], two[header:header+nonceSize]) {
		t.Error("a nonce came twice")
	}
	if bytes.Contains(one, []byte("the same")) {
		t.Error("the seal shows its text")
	}
}

func TestEveryChangedBitIsNoticed(t *testing.T) {
	ring := ringOf(t, keyA, keyB)
	sealed := seal(t, ring, "s", sink)
	for i := range len(sealed) * 8 {
		bad := bytes.Clone(sealed)
		bad[i/8] ^= 1 << (i % 8)
		if plain, err := ring.Open(bad, sink); err == nil {
			t.Errorf("bit %d: opened as %q", i, plain)
		}
	}
	for n := range len(sealed) {
		if _, err := ring.Open(sealed[:n], sink); err == nil {
			t.Errorf("%d bytes of %d opened", n, len(sealed))
		}
	}
	// A key id is authenticated: the id of another known key is no way in.
	bad := bytes.Clone(sealed)
	copy(bad[1:], ring.keys[1].id[:])
	if _, err := ring.Open(bad, sink); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	// Nor is a key that took the id of another.
	renamed := &Keyring{keys: []key{{id: ring.keys[1].id, aead: ring.keys[0].aead}}}
	if _, err := renamed.Open(bad, sink); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}

func TestTheFirstKeySealsAndAllOpen(t *testing.T) {
	before := ringOf(t, keyA)
	old := seal(t, before, "old", sink)
	after := ringOf(t, keyB, keyA)
	if plain, err := after.Open(old, sink); err != nil || string(plain) != "old" {
		t.Fatalf("%q, %v", plain, err)
	}
	fresh := seal(t, after, "new", sink)
	if after.Current(old) || !after.Current(fresh) || after.Current(nil) {
		t.Error("which key sealed what is not known")
	}
	_, err := before.Open(fresh, sink)
	if !errors.Is(err, ErrUnknownKey) || !strings.Contains(err.Error(), fmt.Sprintf("%x", after.keys[0].id)) {
		t.Errorf("sealed under a key that is not there: %v", err)
	}
}

func TestNothingOfAKeyIsPrinted(t *testing.T) {
	ring := ringOf(t, keyA)
	wrapped := struct {
		Ring   *Keyring
		hidden *Keyring
	}{ring, ring}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if got := fmt.Sprintf(verb, ring); got != "keyring of 1 keys" {
			t.Errorf("%s prints %s", verb, got)
		}
		if got := fmt.Sprintf(verb, wrapped); strings.Contains(got, "161 161") || strings.Contains(got, "a1a1") {
			t.Errorf("%s prints %s", verb, got)
		}
	}
}

func TestALargeTextIsNotSealed(t *testing.T) {
	if _, err := ringOf(t, keyA).Seal(make([]byte, maxPlain+1), sink); err == nil {
		t.Error("it was")
	}
}

func FuzzOpen(f *testing.F) {
	ring := ringOf(f, keyA, keyB)
	ring.random = bytes.NewReader(make([]byte, nonceSize)) // the same seal in every process that fuzzes
	good := seal(f, ring, "whsec_secret", sink)
	f.Add(good)
	f.Add([]byte{})
	f.Add(good[:overhead])
	f.Add(append([]byte{2}, good[1:]...))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		plain, err := ring.Open(sealed, sink)
		if err == nil && (!bytes.Equal(sealed, good) || string(plain) != "whsec_secret") {
			t.Errorf("%x opens as %q", sealed, plain)
		}
		if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnknownKey) {
			t.Error(err)
		}
	})
}
