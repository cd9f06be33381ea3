package amount

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

var (
	bigUnit  = big.NewInt(unit)
	bigLimit = new(big.Int).Exp(big.NewInt(10), big.NewInt(38), nil) // in counts
)

// toBig returns the count of a, read from its words.
func toBig(a Amount) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(a.hi), 64)
	return n.Add(n, new(big.Int).SetUint64(a.lo))
}

// fromBig is the inverse of toBig; ok says whether n is in range.
func fromBig(n *big.Int) (a Amount, ok bool) {
	if n.CmpAbs(bigLimit) >= 0 {
		return Amount{}, false
	}
	word := new(big.Int).SetUint64(math.MaxUint64)
	lo := new(big.Int).And(n, word).Uint64()
	return Amount{new(big.Int).Rsh(n, 64).Int64(), lo}, true
}

// roundHalfEvenBig returns num/den, den > 0, rounded half even.
func roundHalfEvenBig(num, den *big.Int) *big.Int {
	q, r := new(big.Int).DivMod(num, den, new(big.Int)) // r ≥ 0, q is the floor
	c := r.Lsh(r, 1).Cmp(den)
	if c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// amounts draws from every size of number, with the edges of words and of the
// range and round numbers well represented.
func amounts() *rapid.Generator[Amount] {
	return rapid.Custom(func(t *rapid.T) Amount {
		n := new(big.Int)
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0: // near the end of the range
			n.Sub(bigLimit, big.NewInt(rapid.Int64Range(1, 1000).Draw(t, "below")))
		case 1: // near a power of two
			n.Lsh(big.NewInt(1), rapid.UintRange(0, 126).Draw(t, "bit"))
			n.Add(n, big.NewInt(rapid.Int64Range(-2, 2).Draw(t, "off")))
			n.Rem(n, bigLimit)
		case 2: // an integer with trailing zeros of any number
			n.SetInt64(rapid.Int64().Draw(t, "digits"))
			n.Mul(n, new(big.Int).SetUint64(pow10[rapid.IntRange(0, 19).Draw(t, "zeros")]))
			n.Rem(n, bigLimit)
		default: // any two words
			n.Lsh(big.NewInt(rapid.Int64().Draw(t, "hi")), 64)
			n.Add(n, new(big.Int).SetUint64(rapid.Uint64().Draw(t, "lo")))
			n.Rem(n, bigLimit)
		}
		if rapid.Bool().Draw(t, "neg") {
			n.Neg(n)
		}
		a, ok := fromBig(n)
		if !ok {
			t.Fatalf("generator left the range: %v", n)
		}
		return a
	})
}

// largest is the greatest Amount, 10^26 - 10^-12.
func largest(t testing.TB) Amount {
	t.Helper()
	a, ok := fromBig(new(big.Int).Sub(bigLimit, big.NewInt(1)))
	if !ok {
		t.Fatal("10^38-1 counts are out of range")
	}
	return a
}

func TestRangeConstants(t *testing.T) {
	words := func(hi, lo uint64) *big.Int {
		n := new(big.Int).SetUint64(hi)
		return n.Add(n.Lsh(n, 64), new(big.Int).SetUint64(lo))
	}
	one := big.NewInt(1)
	if want := new(big.Int).Sub(bigLimit, one); words(biasHi, biasLo).Cmp(want) != 0 {
		t.Errorf("bias is not 10^38-1")
	}
	if want := new(big.Int).Sub(new(big.Int).Lsh(bigLimit, 1), one); words(spanHi, spanLo).Cmp(want) != 0 {
		t.Errorf("span is not 2·10^38-1")
	}
	for i, p := range pow10 {
		if want := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(i)), nil); want.Cmp(words(0, p)) != 0 {
			t.Errorf("pow10[%d] = %d", i, p)
		}
	}
}

func TestFromInt(t *testing.T) {
	for _, n := range []int64{0, 1, -1, 42, math.MaxInt64, math.MinInt64, math.MinInt64 + 1} {
		want := new(big.Int).Mul(big.NewInt(n), bigUnit)
		if got := toBig(FromInt(n)); got.Cmp(want) != 0 {
			t.Errorf("FromInt(%d) counts %v, want %v", n, got, want)
		}
	}
	if FromInt(0) != Zero || FromInt(1) != One {
		t.Errorf("Zero and One are %v and %v", Zero, One)
	}
}

func TestAddAtTheEdges(t *testing.T) {
	top := largest(t)
	tiny := Amount{lo: 1}
	for _, c := range []struct {
		a, b, sum Amount
		ok        bool
	}{
		{top, Zero, top, true},
		{top, tiny, Zero, false},
		{top, top, Zero, false},
		{top, top.Neg(), Zero, true},
		{top.Neg(), Zero, top.Neg(), true},
		{top.Neg(), tiny.Neg(), Zero, false},
		{top.Neg(), top.Neg(), Zero, false},
		{tiny, tiny.Neg(), Zero, true},
	} {
		if sum, ok := c.a.Add(c.b); sum != c.sum || ok != c.ok {
			t.Errorf("%v + %v = %v, %t; want %v, %t", c.a, c.b, sum, ok, c.sum, c.ok)
		}
		if diff, ok := c.a.Sub(c.b.Neg()); diff != c.sum || ok != c.ok {
			t.Errorf("%v - %v = %v, %t; want %v, %t", c.a, c.b.Neg(), diff, ok, c.sum, c.ok)
		}
	}
}

// Random pairs seldom share their upper word, so the order within one is
// walked through here, across every sign bit.
func TestCmpOrdersNeighbors(t *testing.T) {
	top := largest(t)
	ascending := []Amount{
		top.Neg(), {-2, 0}, {-2, 1<<63 - 1}, {-2, 1 << 63}, {-1, 0}, {-1, 1<<64 - 1},
		{0, 0}, {0, 1}, {0, 1<<63 - 1}, {0, 1 << 63}, {0, 1<<64 - 1}, {1, 0}, {1, 1 << 63}, top,
	}
	for i, a := range ascending {
		for j, b := range ascending {
			if want := toBig(a).Cmp(toBig(b)); a.Cmp(b) != want || (i < j) != (want < 0) {
				t.Errorf("Cmp(%v, %v) = %d, want %d", a, b, a.Cmp(b), want)
			}
		}
	}
}

func TestArithmeticAgainstBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := amounts().Draw(t, "a"), amounts().Draw(t, "b")
		x, y := toBig(a), toBig(b)

		want, wantOK := fromBig(new(big.Int).Add(x, y))
		if got, ok := a.Add(b); got != want || ok != wantOK {
			t.Fatalf("Add: %v, %t; want %v, %t", got, ok, want, wantOK)
		}
		want, wantOK = fromBig(new(big.Int).Sub(x, y))
		if got, ok := a.Sub(b); got != want || ok != wantOK {
			t.Fatalf("Sub: %v, %t; want %v, %t", got, ok, want, wantOK)
		}
		if got := toBig(a.Neg()); got.Cmp(new(big.Int).Neg(x)) != 0 {
			t.Fatalf("Neg: %v", got)
		}
		if got := a.Cmp(b); got != x.Cmp(y) {
			t.Fatalf("Cmp: %d", got)
		}
		if a.Cmp(a) != 0 || (a.Cmp(b) == 0) != (a == b) {
			t.Fatalf("Cmp and == disagree")
		}
		if got := a.Sign(); got != x.Sign() {
			t.Fatalf("Sign: %d", got)
		}
		if got := a.IsZero(); got != (x.Sign() == 0) {
			t.Fatalf("IsZero: %t", got)
		}
	})
}

func TestDivIntAgainstBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := amounts().Draw(t, "a")
		n := rapid.OneOf(
			rapid.Int64Range(1, 64),
			rapid.Int64Range(1, math.MaxInt64),
			rapid.Int64Range(math.MaxInt64-2, math.MaxInt64),
		).Draw(t, "n")
		want, _ := fromBig(roundHalfEvenBig(toBig(a), big.NewInt(n)))
		if got := a.DivInt(n); got != want {
			t.Fatalf("%v / %d = %v, want %v", a, n, got, want)
		}
	})
}

func TestDivInt(t *testing.T) {
	for _, c := range []struct {
		a    string
		n    int64
		want string
	}{
		{"0", 7, "0"},
		{"10", 4, "2.5"},
		{"1", 3, "0.333333333333"},
		{"2", 3, "0.666666666667"},
		{"-2", 3, "-0.666666666667"},
		{"0.000000000001", 2, "0"},
		{"0.000000000003", 2, "0.000000000002"},
		{"-0.000000000003", 2, "-0.000000000002"},
		{"0.000000000005", 2, "0.000000000002"},
		{"99999999999999999999999999.999999999999", 1, "99999999999999999999999999.999999999999"},
		{"1", math.MaxInt64, "0"},
	} {
		a, err := Parse(c.a)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.DivInt(c.n).String(); got != c.want {
			t.Errorf("%s / %d = %s, want %s", c.a, c.n, got, c.want)
		}
	}
}

func TestDivIntRefusesNonPositiveCounts(t *testing.T) {
	for _, n := range []int64{0, -1, math.MinInt64} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("DivInt(%d) did not panic", n)
				}
			}()
			One.DivInt(n)
		}()
	}
}

func TestNothingAllocates(t *testing.T) {
	texts := []string{"3", "-17.25", "123456789012345678901234.5", "1e-5", "nonsense", "1e99"}
	buf := make([]byte, 0, 64)
	top := largest(t)
	if n := testing.AllocsPerRun(100, func() {
		for _, s := range texts {
			a, _ := ParseRounded(s)
			b, _ := a.Add(One)
			b = b.DivInt(3)
			_ = b.AppendText(buf)
			_ = top.AppendText(buf)
			_, _, _ = ReadBinary(AppendBinary(buf, b))
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
