package errs

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

// Code says what kind of failure an error is. The zero Code is not a kind of its own and reads as Internal.
type Code uint8

const (
	_ Code = iota
	// Invalid says that the request is malformed or breaks a rule; the same request fails again.
	Invalid
	// NotFound says that what the request names does not exist.
	NotFound
	// AlreadyExists says that what the request wants to create exists.
	AlreadyExists
	// Conflict says that somebody else changed it first; read again and decide.
	Conflict
	// TooLarge says that the request, or one message of it, is past a size limit.
	TooLarge
	// UnsupportedMedia says that the content type or encoding is not one that is understood.
	UnsupportedMedia
	// KeyReused says that an idempotency key came again with different content.
	KeyReused
	// Exhausted says that a quota, a rate or a buffer is full; slow down and retry.
	Exhausted
	// Unavailable says that it cannot be done now; retry.
	Unavailable
	// Precondition says that the state does not allow it, and a retry alone will not help.
	Precondition
	// OutOfRange says that the position asked for lies outside of what exists.
	OutOfRange
	// Unimplemented says that it is not offered here.
	Unimplemented
	// Internal says that a bug or a broken dependency got in the way.
	Internal
	// Canceled says that the caller went away.
	Canceled
	// Deadline says that time ran out; whether it took effect is unknown.
	Deadline
	// Denied says that the caller is known and may not do this.
	Denied
	// Unauthenticated says that the caller is not known.
	Unauthenticated
	// DataLoss says that stored data is missing or corrupt.
	DataLoss
	codeCount
)

// mapping is one row of the table that every translation reads.
type mapping struct {
	name  string
	grpc  codes.Code
	http  int
	retry bool // what New sets Retryable to
}

// mappings is indexed by Code. A protocol that needs codes of its own gets a column here, not a switch elsewhere.
var mappings = [codeCount]mapping{
	Invalid:          {"INVALID", codes.InvalidArgument, http.StatusBadRequest, false},
	NotFound:         {"NOT_FOUND", codes.NotFound, http.StatusNotFound, false},
	AlreadyExists:    {"ALREADY_EXISTS", codes.AlreadyExists, http.StatusConflict, false},
	Conflict:         {"CONFLICT", codes.Aborted, http.StatusConflict, false},
	TooLarge:         {"TOO_LARGE", codes.InvalidArgument, http.StatusRequestEntityTooLarge, false},
	UnsupportedMedia: {"UNSUPPORTED_MEDIA", codes.InvalidArgument, http.StatusUnsupportedMediaType, false},
	KeyReused:        {"KEY_REUSED", codes.InvalidArgument, http.StatusUnprocessableEntity, false},
	Exhausted:        {"EXHAUSTED", codes.ResourceExhausted, http.StatusTooManyRequests, true},
	Unavailable:      {"UNAVAILABLE", codes.Unavailable, http.StatusServiceUnavailable, true},
	Precondition:     {"PRECONDITION", codes.FailedPrecondition, http.StatusBadRequest, false},
	OutOfRange:       {"OUT_OF_RANGE", codes.OutOfRange, http.StatusBadRequest, false},
	Unimplemented:    {"UNIMPLEMENTED", codes.Unimplemented, http.StatusNotImplemented, false},
	Internal:         {"INTERNAL", codes.Internal, http.StatusInternalServerError, false},
	Canceled:         {"CANCELED", codes.Canceled, 499, false}, // 499: client closed the request, as grpc-gateway has it
	Deadline:         {"DEADLINE", codes.DeadlineExceeded, http.StatusGatewayTimeout, false},
	Denied:           {"DENIED", codes.PermissionDenied, http.StatusForbidden, false},
	Unauthenticated:  {"UNAUTHENTICATED", codes.Unauthenticated, http.StatusUnauthorized, false},
	DataLoss:         {"DATA_LOSS", codes.DataLoss, http.StatusInternalServerError, false},
}

func (c Code) mapping() mapping {
	if c == 0 || c >= codeCount {
		return mappings[Internal]
	}
	return mappings[c]
}

// String returns the code's name in UPPER_SNAKE.
func (c Code) String() string { return c.mapping().name }

// GRPC returns the gRPC (and Connect) code that c travels as.
func (c Code) GRPC() codes.Code { return c.mapping().grpc }

// HTTP returns the HTTP status of c.
func (c Code) HTTP() int { return c.mapping().http }

// codeFromGRPC is the inverse of Code.GRPC. Several codes share InvalidArgument; kind, which travels in the
// error's metadata, tells them apart, and is believed only when it fits the gRPC code.
func codeFromGRPC(code codes.Code, kind string) Code {
	first := Internal
	for c := codeCount - 1; c > 0; c-- {
		m := mappings[c]
		if m.grpc != code {
			continue
		}
		if m.name == kind {
			return c
		}
		first = c
	}
	return first
}
