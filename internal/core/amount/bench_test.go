package amount

import "testing"

// Results go to package variables so that the compiler keeps the work.
var (
	sinkAmount Amount
	sinkBytes  []byte
)

func BenchmarkParse(b *testing.B) {
	for _, s := range []string{"3", "1523", "0.000125", "123456789.123456789", "1e3",
		"99999999999999999999999999.999999999999"} {
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a, err := Parse(s)
				if err != nil {
					b.Fatal(err)
				}
				sinkAmount = a
			}
		})
	}
}

func BenchmarkAdd(b *testing.B) {
	x, y := FromInt(1), One.DivInt(3)
	for b.Loop() {
		sum, ok := x.Add(y)
		if !ok {
			b.Fatal("out of range")
		}
		x = sum
	}
	sinkAmount = x
}

func BenchmarkDivInt(b *testing.B) {
	x := largest(b)
	for b.Loop() {
		sinkAmount = x.DivInt(7)
	}
}

func BenchmarkAppendText(b *testing.B) {
	for _, x := range []Amount{FromInt(3), FromInt(10).DivInt(8), largest(b)} {
		b.Run(x.String(), func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, longestText)
			for b.Loop() {
				sinkBytes = x.AppendText(buf)
			}
		})
	}
}

func BenchmarkBinary(b *testing.B) {
	for _, x := range []Amount{FromInt(3), FromInt(1523), FromInt(10).DivInt(8), largest(b)} {
		b.Run(x.String(), func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, 1+maxVarint)
			for b.Loop() {
				a, _, err := ReadBinary(AppendBinary(buf, x))
				if err != nil {
					b.Fatal(err)
				}
				sinkAmount = a
			}
		})
	}
}
