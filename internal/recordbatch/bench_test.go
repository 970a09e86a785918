package recordbatch_test

import (
	"testing"

	"github.com/databus-suite/databus/internal/recordbatch"
)

func BenchmarkBuild(b *testing.B) {
	rs := samples()
	for _, codec := range codecs {
		b.Run(codec.String(), func(b *testing.B) {
			opts := recordbatch.BuilderOptions{Codec: codec}
			builder := recordbatch.NewBuilder(opts)
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				builder.Reset(opts)
				for i := range rs {
					builder.Append(rs[i].Timestamp, rs[i].Key, rs[i].Value, rs[i].Headers)
				}
				var err error
				if out, err = builder.Build(out[:0]); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(builder.Size()))
			b.ReportMetric(float64(len(rs)), "records/op")
		})
	}
}

func BenchmarkRecords(b *testing.B) {
	rs := samples()
	size := int64(len(build(b, recordbatch.BuilderOptions{}, rs)))
	for _, codec := range codecs {
		batch := build(b, recordbatch.BuilderOptions{Codec: codec}, rs)
		b.Run(codec.String(), func(b *testing.B) {
			dec := recordbatch.NewDecoder(0)
			b.ReportAllocs()
			b.SetBytes(size)
			for b.Loop() {
				for _, err := range dec.Records(batch) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	batch := build(b, recordbatch.BuilderOptions{}, samples())
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := recordbatch.Check(batch); err != nil {
			b.Fatal(err)
		}
	}
}
