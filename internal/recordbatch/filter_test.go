package recordbatch

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFilter(t *testing.T) {
	t.Parallel()
	for codec := None; codec < numCodecs; codec++ {
		b := NewBuilder(BuilderOptions{Codec: codec})
		for i := range 10 {
			b.Append(int64(100+i), fmt.Appendf(nil, "k%d", i), fmt.Appendf(nil, "value %d", i), []RecordHeader{{Key: "h", Value: []byte{1}}})
		}
		batch, err := b.Build(nil)
		if err != nil {
			t.Fatal(err)
		}
		SetOffset(batch, 50, 3)
		SetProducer(batch, 7, 1, 9)
		for _, want := range [][]int64{{50, 53, 59}, {52}, {}} {
			var keep []Record
			for r, err := range Records(batch, 0) {
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range want {
					if r.Offset == o {
						keep = append(keep, r)
					}
				}
			}
			out, err := Filter(batch, keep)
			if err != nil {
				t.Fatal(err)
			}
			h, err := Check(out)
			if err != nil {
				t.Fatalf("%v %v: %v", codec, want, err)
			}
			if h.BaseOffset != 50 || h.LastOffset() != 59 || h.ProducerID != 7 || h.BaseSequence != 9 || h.LeaderEpoch != 3 || int(h.Count) != len(want) {
				t.Errorf("%v %v: header %+v", codec, want, h)
			}
			var got []Record
			for r, err := range Records(out, 0) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, r)
			}
			if diff := cmp.Diff(keep, got); diff != "" {
				t.Errorf("%v %v: %s", codec, want, diff)
			}
		}
	}
}
