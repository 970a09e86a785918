package errs

import (
	"errors"
	"maps"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain is the ErrorInfo domain of every error of the suite.
const Domain = "databus"

// Keys of ErrorInfo's metadata that carry fields of Error.
const (
	metaKind      = "kind"
	metaField     = "field"
	metaNext      = "nextStep"
	metaRetryable = "retryable"
)

// GRPCStatus returns the gRPC status of e, with its details. grpc-go calls it for an error that a handler
// returns, and status.FromError finds it too.
func (e *Error) GRPCStatus() *status.Status {
	st := status.New(e.Code.GRPC(), e.wireMessage())
	with, err := st.WithDetails(e.details()...)
	if err != nil {
		return st // details that cannot be packed must not hide the error itself
	}
	return with
}

// Proto returns the google.rpc.Status of e.
func (e *Error) Proto() *rpcstatus.Status { return e.GRPCStatus().Proto() }

// Connect returns e as a Connect error with the same code, message and details.
func (e *Error) Connect() *connect.Error {
	out := connect.NewError(connect.Code(e.Code.GRPC()), errors.New(e.wireMessage()))
	for _, d := range e.details() {
		if detail, err := connect.NewErrorDetail(protoadapt.MessageV2Of(d)); err == nil {
			out.AddDetail(detail)
		}
	}
	if e.RetryAfter > 0 {
		out.Meta().Set("Retry-After", retryAfterSeconds(e.RetryAfter))
	}
	return out
}

// wireMessage is what the caller reads. The cause of an internal error may hold what is none of the caller's
// business, so it goes to the log alone.
func (e *Error) wireMessage() string {
	if e.Code.GRPC() == codes.Internal {
		return e.Message
	}
	return e.Error()
}

func (e *Error) details() []protoadapt.MessageV1 {
	meta := make(map[string]string, len(e.Meta)+4)
	maps.Copy(meta, e.Meta)
	meta[metaKind] = e.Code.String()
	meta[metaRetryable] = strconv.FormatBool(e.Retryable)
	if e.Next != "" {
		meta[metaNext] = e.Next
	}
	if e.Field != "" {
		meta[metaField] = e.Field
	}
	reason := e.Reason
	if reason == "" {
		reason = e.Code.String()
	}
	out := []protoadapt.MessageV1{protoadapt.MessageV1Of(&errdetails.ErrorInfo{Reason: reason, Domain: Domain, Metadata: meta})}
	if v := e.violations(); len(v) > 0 {
		out = append(out, protoadapt.MessageV1Of(&errdetails.BadRequest{FieldViolations: v}))
	}
	if e.RetryAfter > 0 {
		out = append(out, protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)}))
	}
	return out
}

func (e *Error) violations() []*errdetails.BadRequest_FieldViolation {
	if len(e.Violations) == 0 && e.Field != "" {
		return []*errdetails.BadRequest_FieldViolation{{Field: e.Field, Description: e.wireMessage()}}
	}
	out := make([]*errdetails.BadRequest_FieldViolation, len(e.Violations))
	for i, v := range e.Violations {
		out[i] = &errdetails.BadRequest_FieldViolation{Field: v.Field, Description: v.Message}
	}
	return out
}

// FromProto returns the error that a google.rpc.Status describes, such as one in a per-message result. It
// returns nil for nil and for code OK.
func FromProto(st *rpcstatus.Status) *Error {
	if st.GetCode() == int32(codes.OK) {
		return nil
	}
	details := make([]proto.Message, 0, len(st.GetDetails()))
	for _, d := range st.GetDetails() {
		if m, err := d.UnmarshalNew(); err == nil {
			details = append(details, m)
		}
	}
	return rebuild(codes.Code(st.GetCode()), st.GetMessage(), details)
}

// fromWire returns the error in a gRPC status or a Connect error, and nil where err carries neither.
func fromWire(err error) *Error {
	var g interface{ GRPCStatus() *status.Status }
	if errors.As(err, &g) {
		if st := g.GRPCStatus(); st != nil && st.Code() != codes.OK {
			e := FromProto(st.Proto())
			e.Message = prefixed(err, g, st.Message())
			return e
		}
	}
	var c *connect.Error
	if !errors.As(err, &c) {
		return nil
	}
	details := make([]proto.Message, 0, len(c.Details()))
	for _, d := range c.Details() {
		if m, derr := d.Value(); derr == nil {
			details = append(details, m)
		}
	}
	return rebuild(codes.Code(c.Code()), prefixed(err, c, c.Message()), details)
}

// prefixed returns message with the text that outer has in front of inner.
func prefixed(outer error, inner any, message string) string {
	in, ok := inner.(error)
	if !ok {
		return message
	}
	text, inText := outer.Error(), in.Error()
	if n := len(text) - len(inText); n > 0 && text[n:] == inText {
		return text[:n] + message
	}
	return message
}

func rebuild(code codes.Code, message string, details []proto.Message) *Error {
	e := &Error{Code: codeFromGRPC(code, ""), Message: message}
	e.Retryable = e.Code.mapping().retry
	for _, d := range details {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			e.fill(code, d)
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Violations = append(e.Violations, Violation{Field: v.GetField(), Message: v.GetDescription()})
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
			e.Retryable = true
		}
	}
	if len(e.Violations) > 0 && e.Field == "" {
		e.Field = e.Violations[0].Field
	}
	if len(e.Violations) == 1 && e.Violations[0].Message == message {
		e.Violations = nil // it says what Field and Message say
	}
	if e.Reason == "" {
		e.Reason = e.Code.String()
	}
	return e
}

// fill takes over what an ErrorInfo of the suite says. Of another domain's only the reason is kept.
func (e *Error) fill(code codes.Code, info *errdetails.ErrorInfo) {
	e.Reason = info.GetReason()
	if info.GetDomain() != Domain {
		return
	}
	for k, v := range info.GetMetadata() {
		switch k {
		case metaKind:
			e.Code = codeFromGRPC(code, v)
		case metaRetryable:
			e.Retryable = v == "true"
		case metaNext:
			e.Next = v
		case metaField:
			e.Field = v
		default:
			if e.Meta == nil {
				e.Meta = map[string]string{}
			}
			e.Meta[k] = v
		}
	}
}

// retryAfterSeconds is the value of a Retry-After header: whole seconds, at least one.
func retryAfterSeconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}
