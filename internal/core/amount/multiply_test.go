package amount

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestMul(t *testing.T) {
	for _, c := range []struct {
		a, b, want string
		exact      bool
	}{
		{"10", "2", "20", true},
		{"10", "1.5", "15", true},
		{"-3", "0.5", "-1.5", true},
		{"-3", "-0.5", "1.5", true},
		{"0", "99999999999999999999999999", "0", true},
		{"0.000000000001", "0.8", "0", false},
		{"0.000000000003", "0.5", "0.000000000001", false},
		{"-0.000000000003", "0.5", "-0.000000000001", false},
		{"99999999999999999999999999.999999999999", "1", "99999999999999999999999999.999999999999", true},
	} {
		got, exact, ok := mustParse(c.a).Mul(mustParse(c.b))
		if !ok || got.String() != c.want || exact != c.exact {
			t.Errorf("%s × %s: %s exact %t fits %t, want %s exact %t", c.a, c.b, got, exact, ok, c.want, c.exact)
		}
	}
	for _, c := range [][2]string{{"10000000000000", "10000000000000"}, {"99999999999999999999999999", "1.1"},
		{"99999999999999999999999999", "-99999999999999999999999999"}} {
		if got, _, ok := mustParse(c[0]).Mul(mustParse(c[1])); ok {
			t.Errorf("%s × %s: %s, want that it does not fit", c[0], c[1], got)
		}
	}
}

// Mul agrees with arithmetic that has no bounds.
func TestMulAgainstBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Amount {
			a := signed(rapid.Bool().Draw(t, name+" sign"),
				rapid.Uint64Range(0, 0x4b3b4ca85a86c479).Draw(t, name+" high"), rapid.Uint64().Draw(t, name+" low"))
			for range rapid.IntRange(0, 30).Draw(t, name+" smaller") {
				a = a.DivInt(10)
			}
			return a
		}
		a, b := draw("a"), draw("b")
		want := new(big.Int).Mul(counts(a), counts(b))
		want, rest := want.QuoRem(want, big.NewInt(unit), new(big.Int))
		limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(38), nil)
		got, exact, ok := a.Mul(b)
		if fits := want.CmpAbs(limit) < 0; fits != ok {
			t.Fatalf("%s × %s: fits %t, want %t", a, b, ok, fits)
		}
		if ok && (counts(got).Cmp(want) != 0 || exact != (rest.Sign() == 0)) {
			t.Fatalf("%s × %s: %s exact %t, want %s counts", a, b, got, exact, want)
		}
	})
}

func counts(a Amount) *big.Int {
	neg, hi, lo := a.magnitude()
	n := new(big.Int).SetUint64(hi)
	n.Add(n.Lsh(n, 64), new(big.Int).SetUint64(lo))
	if neg {
		n.Neg(n)
	}
	return n
}

func mustParse(s string) Amount {
	a, err := Parse(s)
	if err != nil {
		panic(err)
	}
	return a
}
