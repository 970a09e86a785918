package intake

import (
	"net/http"
	"strconv"
	"time"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/wirejson"
)

var jsonType = []string{"application/json"}

// answer writes the results: 200 where every message has what its channel promises, 202 where that is the agent's memory, 207
// where it differs, with the longest time after which a failed one may be repeated. Where all failed for one reason, or may all be
// repeated, that is the answer.
func (q *request) answer(w http.ResponseWriter) {
	results := q.pending.Results()
	status := http.StatusOK
	if q.pending.Buffered() {
		status = http.StatusAccepted
	}
	if failed, same, wait := failures(results); failed > 0 {
		if same && failed == len(results) {
			errs.WriteHTTP(w, results[0].Err)
			return
		}
		status = http.StatusMultiStatus
		if wait > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
		}
	}
	q.out = append(wirejson.AppendResults(q.out[:0], results), '\n')
	h := w.Header()
	h["Content-Type"] = jsonType
	if len(q.out) > 2048 { // net/http counts shorter ones itself
		h["Content-Length"] = []string{strconv.Itoa(len(q.out))}
	}
	w.WriteHeader(status)
	_, _ = w.Write(q.out) // the caller went away: nobody is left to tell
}

// failures counts the failed messages and tells whether all of them failed for one reason, or for some of one code after which they
// may be repeated, and the longest wait before that.
func failures(results []wirejson.Result) (n int, same bool, wait time.Duration) {
	var first *errs.Error
	same = true
	for i := range results {
		err := results[i].Err
		if err == nil {
			continue
		}
		if n == 0 {
			first = err
		}
		same = same && (err.Reason == first.Reason || err.Code == first.Code && err.RetryAfter > 0 && first.RetryAfter > 0)
		wait = max(wait, err.RetryAfter)
		n++
	}
	return n, same, wait
}
