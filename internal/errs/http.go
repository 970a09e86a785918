package errs

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// WriteHTTP answers a request with err: the HTTP status of its code, a Retry-After header where the caller is
// asked to wait, and google.rpc.Status as JSON.
func WriteHTTP(w http.ResponseWriter, err error) {
	e := From(err)
	if e == nil {
		e = New(Internal, reasonInternal, "internal error")
	}
	body := AppendJSON(nil, e.Proto())
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Del("Content-Encoding")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", retryAfterSeconds(e.RetryAfter))
	}
	w.WriteHeader(e.HTTPStatus())
	_, _ = w.Write(body) // a caller that went away is no news
}

// AppendJSON appends st as JSON: {"code","message","details":[{"@type",…}]}. Equal statuses give equal bytes.
func AppendJSON(dst []byte, st *rpcstatus.Status) []byte {
	raw, err := protojson.Marshal(st)
	if err != nil {
		// A detail of a type that is not linked in: the error itself still has to come through.
		raw, err = protojson.Marshal(&rpcstatus.Status{Code: st.GetCode(), Message: st.GetMessage()})
	}
	if err != nil {
		return append(dst, `{"code":13,"message":"internal error"}`...)
	}
	// protojson varies its white space on purpose.
	buf := bytes.NewBuffer(dst)
	if json.Compact(buf, raw) != nil {
		return append(dst, raw...)
	}
	return buf.Bytes()
}
