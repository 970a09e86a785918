package wirejson

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
)

func TestResultProtos(t *testing.T) {
	t.Parallel()
	refused := errs.New(errs.Invalid, "WHY", "because")
	got := ResultProtos([]Result{
		{Topic: "t", TimestampMillis: 1500, Placed: true, Partition: 2, Offset: 3},
		{Err: refused},
		{Topic: "t", TimestampMillis: -1, Duplicate: true},
	})
	for i, want := range []*databusv1.PublishResult{
		{Topic: "t", Partition: new(int32(2)), Offset: new(int64(3)), Timestamp: &timestamppb.Timestamp{Seconds: 1, Nanos: 5e8}},
		{Error: got[1].GetError()},
		{Topic: "t", Duplicate: true, Timestamp: &timestamppb.Timestamp{Seconds: -1, Nanos: 999e6}},
	} {
		if !proto.Equal(got[i], want) {
			t.Errorf("%d: got %v, want %v", i, got[i], want)
		}
	}
	if err := errs.FromProto(got[1].GetError()); err.Reason != refused.Reason || err.Message != refused.Message {
		t.Error(err)
	}
}
