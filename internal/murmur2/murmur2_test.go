package murmur2_test

import (
	"testing"

	"github.com/databus-suite/databus/internal/murmur2"
)

// Vectors of Kafka's own test of its hash.
var vectors = map[string]int32{
	"21":                         -973932308,
	"foobar":                     -790332482,
	"a-little-bit-long-string":   -985981536,
	"a-little-bit-longer-string": -1486304829,
	"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
	"abc": 479470107,
}

func TestSum(t *testing.T) {
	t.Parallel()
	for key, want := range vectors {
		if got := murmur2.Sum([]byte(key)); got != want {
			t.Errorf("Sum(%q) = %d, want %d", key, got, want)
		}
	}
	if a, b := murmur2.Sum(nil), murmur2.Sum([]byte{}); a != b {
		t.Errorf("Sum(nil) = %d, Sum(empty) = %d", a, b)
	}
}

func TestPartition(t *testing.T) {
	t.Parallel()
	for key, sum := range vectors {
		for _, n := range []int32{1, 2, 3, 7, 12, 100, 1<<31 - 1} {
			want := int32((int64(sum) & 0x7fffffff) % int64(n))
			if got := murmur2.Partition([]byte(key), n); got != want {
				t.Errorf("Partition(%q, %d) = %d, want %d", key, n, got, want)
			}
		}
	}
}

func BenchmarkPartition(b *testing.B) {
	key := []byte("a-little-bit-longer-string")
	b.ReportAllocs()
	for b.Loop() {
		murmur2.Partition(key, 12)
	}
}
