package amount

import (
	"encoding/hex"
	"testing"
)

func TestDecimals(t *testing.T) {
	for text, want := range map[string]string{
		"0":               "00000000000000000000000000000000",
		"0.000000000001":  "00000000000000000000000000000001",
		"-0.000000000001": "ffffffffffffffffffffffffffffffff",
		"1":               "0000000000000000000000e8d4a51000",
		"-1":              "ffffffffffffffffffffff172b5af000",
	} {
		a, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		d := a.Decimal()
		if got := hex.EncodeToString(d[:]); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
		if back, ok := FromDecimal(&d); !ok || back != a {
			t.Errorf("%s came back as %s, %v", text, back, ok)
		}
	}
	for _, sign := range []byte{0x7f, 0x80} {
		if _, ok := FromDecimal(&Decimal{sign}); ok {
			t.Errorf("%x… has more than 38 digits and was read", sign)
		}
	}
}
