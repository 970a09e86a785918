package wirejson

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/databus-suite/databus/internal/errs"
)

// registerQueryParser: the gateway keeps its query parser in a variable of its own package, so it is set once, before any mux
// that could read it serves.
var registerQueryParser = sync.OnceFunc(func() { runtime.SetQueryParameterParser(queryParser{})(nil) })

// GatewayOptions makes a gateway speak the suite's JSON: marshaler, strict query parameters (on requests with a body too),
// trace headers, and a request's errors as google.rpc.Status. Paths
// and methods that do not exist are left to the server.
func GatewayOptions() []runtime.ServeMuxOption {
	registerQueryParser()
	return []runtime.ServeMuxOption{
		runtime.WithMarshalerOption(runtime.MIMEWildcard, GatewayMarshaler{}),
		runtime.WithMiddlewares(preparer(bodylessRoutes())),
		runtime.WithErrorHandler(writeError),
		runtime.WithIncomingHeaderMatcher(incomingHeader),
		runtime.WithOutgoingHeaderMatcher(outgoingHeader),
		runtime.WithOutgoingTrailerMatcher(outgoingHeader),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptSlash),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithWriteContentLength(),
	}
}

// GatewayMarshaler is the gateway's marshaler for every content type.
type GatewayMarshaler struct{}

var _ runtime.Marshaler = GatewayMarshaler{}

// ContentType of every answer.
func (GatewayMarshaler) ContentType(any) string { return "application/json" }

// StreamContentType of a streamed answer: one document a line.
func (GatewayMarshaler) StreamContentType(any) string { return "application/x-ndjson" }

// Delimiter between the documents of a stream.
func (GatewayMarshaler) Delimiter() []byte { return []byte("\n") }

// Marshal encodes a message, or one chunk of a stream, which the gateway wraps into a map.
func (GatewayMarshaler) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case proto.Message:
		return Append(nil, v)
	case map[string]proto.Message:
		for name, m := range v {
			return appendChunk(name, m)
		}
	case map[string]any:
		if len(v) != 1 {
			break
		}
		for name, one := range v {
			if m, ok := one.(proto.Message); ok {
				return appendChunk(name, m)
			}
		}
	}
	return json.Marshal(v)
}

func appendChunk(name string, m proto.Message) ([]byte, error) {
	out, err := AppendLine(append(appendText([]byte{'{'}, name), ':'), m)
	return append(out, '}'), err
}

// Unmarshal decodes a message. Payloads alias data.
func (GatewayMarshaler) Unmarshal(data []byte, v any) error {
	m, err := target(v)
	if err != nil {
		return err
	}
	return Unmarshal(data, m)
}

// target finds the message to decode into; the gateway passes a pointer to a field where only that field is in the body.
func target(v any) (proto.Message, error) {
	if m, ok := v.(proto.Message); ok {
		return m, nil
	}
	if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer && p.Elem().Kind() == reflect.Pointer {
		if p.Elem().IsNil() {
			p.Elem().Set(reflect.New(p.Type().Elem().Elem()))
		}
		if m, ok := p.Elem().Interface().(proto.Message); ok {
			return m, nil
		}
	}
	return nil, fmt.Errorf("decode JSON into %T: it is no protobuf message", v)
}

// NewEncoder writes documents to w.
func (g GatewayMarshaler) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		out, err := g.Marshal(v)
		if err == nil {
			_, err = w.Write(out)
		}
		return err
	})
}

// NewDecoder reads one document, the whole of r. Given the body that preparer has wrapped, it also fills in what the query has,
// and leaves its error there: the gateway turns errors into text.
func (GatewayMarshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		m, err := target(v)
		if err != nil {
			return err
		}
		body, _ := r.(*requestBody)
		err = decodeBody(r, m)
		empty := errors.Is(err, io.EOF)
		if body != nil && (err == nil || empty) {
			if qerr := body.merge(m); qerr != nil {
				err = qerr
			}
		}
		if body != nil && err != nil && !errors.Is(err, io.EOF) {
			body.err = errs.From(err)
		}
		return err
	})
}

// decodeBody returns io.EOF, as the gateway has it, where there is nothing in the body.
func decodeBody(r io.Reader, m proto.Message) error {
	data, err := io.ReadAll(r)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return errs.New(errs.TooLarge, "BODY_TOO_LARGE", "the body has more than the %d bytes allowed", tooLarge.Limit)
	case err != nil:
		return errs.New(errs.Invalid, "BODY_INCOMPLETE", "the body could not be read to its end").Wrap(err)
	case skipSpace(data, 0) == len(data):
		return io.EOF
	}
	return Unmarshal(data, m)
}

// requestBody carries through the generated handler what that does not pass on: query and path to the decoder, and the
// decoder's error to the error handler.
type requestBody struct {
	io.ReadCloser
	query url.Values
	path  map[string]string
	err   *errs.Error
}

// merge fills in query parameters, and refuses a body that contradicts the path.
func (b *requestBody) merge(m proto.Message) error {
	for name, value := range b.path {
		fd, _ := findField(m.ProtoReflect().Descriptor().Fields(), name)
		if fd == nil || !m.ProtoReflect().Has(fd) {
			continue
		}
		if got := m.ProtoReflect().Get(fd).String(); got != value {
			return errs.New(errs.Invalid, ReasonInvalid, "%s is %q in the body and %q in the path", fd.JSONName(), got, value).
				WithField(fd.JSONName()).WithNext("leave it out of the body")
		}
	}
	return fillFromQuery(m, b.query, b.inPath)
}

func (b *requestBody) inPath(field []string) bool {
	_, ok := b.path[strings.Join(field, ".")]
	return ok
}

// preparer refuses what is no JSON and what is wrong with a query, and wraps the body. It does so ahead of the generated
// handlers, because those make text of errors, and look at no query where a path holds all fields.
func preparer(routes map[string]protoreflect.MessageType) runtime.Middleware {
	return func(next runtime.HandlerFunc) runtime.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request, path map[string]string) {
			query, err := url.ParseQuery(r.URL.RawQuery)
			if err != nil {
				errs.WriteHTTP(w, errs.New(errs.Invalid, "MALFORMED_QUERY", "the query is malformed").Wrap(err))
				return
			}
			if e := checkContentType(r); e != nil {
				errs.WriteHTTP(w, e)
				return
			}
			body := &requestBody{ReadCloser: r.Body, query: query, path: path}
			if len(query) > 0 {
				pattern, _ := runtime.HTTPPattern(r.Context())
				if request := routes[r.Method+" "+pattern.String()]; request != nil {
					if err := fillFromQuery(request.New().Interface(), query, body.inPath); err != nil {
						errs.WriteHTTP(w, err)
						return
					}
				}
			}
			r.Form = query // so that the generated handler does not take a form out of the body
			r.Body = body
			next(w, r, path)
		}
	}
}

func checkContentType(r *http.Request) *errs.Error {
	contentType := r.Header.Get("Content-Type")
	if contentType == "" || r.ContentLength == 0 || r.Method == http.MethodGet || r.Method == http.MethodDelete {
		return nil
	}
	kind, params, err := mime.ParseMediaType(contentType)
	charset := strings.ToLower(params["charset"])
	if err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json")) && (charset == "" || charset == "utf-8") {
		return nil
	}
	return errs.New(errs.UnsupportedMedia, "UNSUPPORTED_CONTENT_TYPE", "the content type %s is not taken here", clip(contentType)).
		WithNext("send JSON with Content-Type: application/json")
}

// writeError answers with the error as it was, before the generated handler made text of it.
func writeError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	body, _ := r.Body.(*requestBody)
	var status *runtime.HTTPStatusError
	switch {
	case body != nil && body.err != nil:
		err = body.err
	case errors.As(err, &status):
		err = errs.New(errs.Invalid, "MALFORMED_PATH", "the path %s is malformed", clip(r.URL.EscapedPath())).Wrap(status.Err)
	default:
		err = pathError(errs.From(err))
	}
	errs.WriteHTTP(w, err)
}

// pathError puts the generated handler's "type mismatch, parameter: partition, error: …" into words.
func pathError(e *errs.Error) *errs.Error {
	rest, found := strings.CutPrefix(e.Message, "type mismatch, parameter: ")
	if !found || e.Code != errs.Invalid {
		return e
	}
	name, _, _ := strings.Cut(rest, ",")
	name = lowerCamel(name)
	return errs.New(errs.Invalid, ReasonInvalid, "%s in the path is not an integer of the size that it has", name).WithField(name)
}

// incomingHeader lets through what the services read: W3C trace context, the suite's own headers and the idempotency key.
func incomingHeader(name string) (string, bool) {
	name = strings.ToLower(name)
	switch name {
	case "traceparent", "tracestate", "baggage", "idempotency-key":
		return name, true
	}
	return name, strings.HasPrefix(name, "databus-")
}

// outgoingHeader lets through the suite's own headers; all others are gRPC's business.
func outgoingHeader(name string) (string, bool) {
	name = strings.ToLower(name)
	return name, strings.HasPrefix(name, "databus-") || name == "retry-after"
}
