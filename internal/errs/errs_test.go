package errs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
)

var codeTable = []struct {
	code      errs.Code
	grpc      codes.Code
	http      int
	retryable bool
}{
	{errs.Invalid, codes.InvalidArgument, 400, false},
	{errs.NotFound, codes.NotFound, 404, false},
	{errs.AlreadyExists, codes.AlreadyExists, 409, false},
	{errs.Conflict, codes.Aborted, 409, false},
	{errs.TooLarge, codes.InvalidArgument, 413, false},
	{errs.UnsupportedMedia, codes.InvalidArgument, 415, false},
	{errs.KeyReused, codes.InvalidArgument, 422, false},
	{errs.Exhausted, codes.ResourceExhausted, 429, true},
	{errs.Unavailable, codes.Unavailable, 503, true},
	{errs.Precondition, codes.FailedPrecondition, 400, false},
	{errs.OutOfRange, codes.OutOfRange, 400, false},
	{errs.Unimplemented, codes.Unimplemented, 501, false},
	{errs.Internal, codes.Internal, 500, false},
	{errs.Canceled, codes.Canceled, 499, false},
	{errs.Deadline, codes.DeadlineExceeded, 504, false},
	{errs.Denied, codes.PermissionDenied, 403, false},
	{errs.Unauthenticated, codes.Unauthenticated, 401, false},
	{errs.DataLoss, codes.DataLoss, 500, false},
}

func TestCodesRoundTrip(t *testing.T) {
	t.Parallel()
	for _, tc := range codeTable {
		t.Run(tc.code.String(), func(t *testing.T) {
			t.Parallel()
			e := errs.New(tc.code, "SOME_REASON", "open topic %q", "orders").
				WithNext("create it with %s", "databus topic create orders").
				WithField("topic").
				WithMeta("topic", "orders")
			if e.Retryable != tc.retryable {
				t.Errorf("New sets Retryable to %v, want %v", e.Retryable, tc.retryable)
			}
			if got := status.Code(e); got != tc.grpc {
				t.Errorf("gRPC code %v, want %v", got, tc.grpc)
			}
			if got := e.HTTPStatus(); got != tc.http {
				t.Errorf("HTTP status %d, want %d", got, tc.http)
			}
			for name, wire := range map[string]error{
				"grpc":    e.GRPCStatus().Err(),
				"connect": e.Connect(),
				"proto":   errs.FromProto(e.Proto()),
			} {
				if diff := cmp.Diff(e, errs.From(wire)); diff != "" {
					t.Errorf("over %s (-sent +received):\n%s", name, diff)
				}
			}
		})
	}
}

func TestRetryAfterSurvives(t *testing.T) {
	t.Parallel()
	e := errs.New(errs.Exhausted, "BUFFER_FULL", "publish to orders").WithRetryAfter(1500 * time.Millisecond)
	for name, wire := range map[string]error{"grpc": e.GRPCStatus().Err(), "connect": e.Connect()} {
		got := errs.From(wire)
		if got.RetryAfter != 1500*time.Millisecond || !got.Retryable {
			t.Errorf("over %s: RetryAfter %v, Retryable %v", name, got.RetryAfter, got.Retryable)
		}
	}
	if got := e.Connect().Meta().Get("Retry-After"); got != "2" {
		t.Errorf("Connect's Retry-After is %q, want 2", got)
	}
}

func TestNotRetryableSurvives(t *testing.T) {
	t.Parallel()
	e := errs.New(errs.Unavailable, "GONE", "gone for good")
	e.Retryable = false
	if errs.Retryable(e.GRPCStatus().Err()) {
		t.Error("an error that is not retryable came back retryable")
	}
}

func TestWriteHTTP(t *testing.T) {
	t.Parallel()
	e := errs.New(errs.Exhausted, "RATE_LIMIT", "publish to orders").
		WithRetryAfter(10 * time.Millisecond).WithNext("slow down")
	rec := httptest.NewRecorder()
	errs.WriteHTTP(rec, fmt.Errorf("batch 3: %w", e))
	res := rec.Result()
	if res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d", res.StatusCode)
	}
	if got := res.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	if got := res.Header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After %q, want 1", got)
	}
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	want := map[string]any{
		"code":    float64(codes.ResourceExhausted),
		"message": "batch 3: publish to orders",
		"details": []any{
			map[string]any{
				"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RATE_LIMIT", "domain": "databus",
				"metadata": map[string]any{"kind": "EXHAUSTED", "retryable": "true", "nextStep": "slow down"},
			},
			map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.010s"},
		},
	}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestFrom(t *testing.T) {
	t.Parallel()
	notFound := errs.New(errs.NotFound, "CHANNEL_NOT_FOUND", "channel orders does not exist")
	cases := []struct {
		name    string
		in      error
		code    errs.Code
		reason  string
		message string
	}{
		{"itself", notFound, errs.NotFound, "CHANNEL_NOT_FOUND", "channel orders does not exist"},
		{"wrapped", fmt.Errorf("publish: %w", notFound), errs.NotFound, "CHANNEL_NOT_FOUND", "publish: channel orders does not exist"},
		{"wrapped over gRPC", fmt.Errorf("ask the broker: %w", notFound.GRPCStatus().Err()), errs.NotFound, "CHANNEL_NOT_FOUND",
			"ask the broker: channel orders does not exist"},
		{"wrapped over Connect", fmt.Errorf("ask the broker: %w", notFound.Connect()), errs.NotFound, "CHANNEL_NOT_FOUND",
			"ask the broker: channel orders does not exist"},
		{"foreign gRPC", status.Error(codes.Unavailable, "no connection"), errs.Unavailable, "UNAVAILABLE", "no connection"},
		{"foreign Connect", connect.NewError(connect.CodePermissionDenied, errors.New("no")), errs.Denied, "DENIED", "no"},
		{"unknown gRPC", status.Error(codes.Unknown, "odd"), errs.Internal, "INTERNAL", "odd"},
		{"canceled", fmt.Errorf("read: %w", context.Canceled), errs.Canceled, "CANCELED", "canceled by the caller"},
		{"deadline", context.DeadlineExceeded, errs.Deadline, "DEADLINE_EXCEEDED", "time ran out"},
		{"other", io.ErrUnexpectedEOF, errs.Internal, "INTERNAL", "internal error"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := errs.From(tc.in)
			if got.Code != tc.code || got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("got %v %s %q, want %v %s %q", got.Code, got.Reason, got.Message, tc.code, tc.reason, tc.message)
			}
		})
	}
	if errs.From(nil) != nil || errs.FromProto(nil) != nil || errs.FromValidation(nil) != nil || errs.CodeOf(nil) != 0 {
		t.Error("nil is not an error")
	}
	if !errors.Is(fmt.Errorf("again: %w", notFound.WithNext("create it")), notFound) {
		t.Error("a refined error is not found by errors.Is")
	}
}

func TestCauseOfInternalStaysHere(t *testing.T) {
	t.Parallel()
	secret := errors.New("password=hunter2")
	internal := errs.New(errs.Internal, "QUERY_FAILED", "query the index").Wrap(secret)
	if got := internal.Proto().GetMessage(); got != "query the index" {
		t.Errorf("message %q", got)
	}
	if !errors.Is(internal, secret) {
		t.Error("the cause is lost")
	}
	lost := errs.New(errs.DataLoss, "SEGMENT_CORRUPT", "read orders/0").Wrap(io.ErrUnexpectedEOF)
	if got := lost.Proto().GetMessage(); got != "read orders/0: unexpected EOF" {
		t.Errorf("message %q", got)
	}
}

func TestCopies(t *testing.T) {
	t.Parallel()
	base := errs.New(errs.NotFound, "X", "x").WithMeta("a", "1")
	_ = base.WithMeta("b", "2").WithNext("n").WithField("f").WithRetryAfter(time.Second).Wrap(io.EOF)
	want := &errs.Error{Code: errs.NotFound, Reason: "X", Message: "x", Meta: map[string]string{"a": "1"}}
	if diff := cmp.Diff(want, base); diff != "" {
		t.Errorf("the original changed:\n%s", diff)
	}
}

func TestFromValidation(t *testing.T) {
	t.Parallel()
	config := &databusv1.ChannelConfig{
		Batch:  &databusv1.Batch{Linger: durationpb.New(time.Hour), MaxMessages: -1},
		Routes: []*databusv1.Route{{Topic: "fine"}, {}},
	}
	e := errs.FromValidation(protovalidate.Validate(&databusv1.CreateChannelRequest{Name: "orders", Config: config}))
	if e == nil || e.Code != errs.Invalid {
		t.Fatalf("got %v", e)
	}
	var fields []string
	for _, v := range e.Violations {
		if v.Message == "" {
			t.Errorf("%s has no message", v.Field)
		}
		fields = append(fields, v.Field)
	}
	want := []string{"config.routes[1].topic", "config.batch.linger", "config.batch.maxMessages"}
	if diff := cmp.Diff(want, fields, cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if e.Field != fields[0] {
		t.Errorf("Field %q is not the first of %v", e.Field, fields)
	}
	if diff := cmp.Diff(e, errs.From(e.GRPCStatus().Err())); diff != "" {
		t.Errorf("over gRPC (-sent +received):\n%s", diff)
	}
	if got := errs.FromValidation(io.EOF); got.Code != errs.Internal {
		t.Errorf("another error became %v", got.Code)
	}
}
