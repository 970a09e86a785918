package intake

import (
	"net/http"
	"strconv"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/wirejson"
)

var jsonType = []string{"application/json"}

// answer writes the results: 200 where every message has what its channel promises, 202 where that is the agent's memory, 207
// where it differs. Where all failed for one reason, that is the answer.
func (q *request) answer(w http.ResponseWriter) {
	results := q.pending.Results()
	status := http.StatusOK
	if q.pending.Buffered() {
		status = http.StatusAccepted
	}
	if failed, same := failures(results); failed > 0 {
		if same && failed == len(results) {
			errs.WriteHTTP(w, results[0].Err)
			return
		}
		status = http.StatusMultiStatus
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

// failures counts the failed messages and tells whether all of them failed for one reason.
func failures(results []wirejson.Result) (n int, same bool) {
	var reason string
	same = true
	for i := range results {
		err := results[i].Err
		if err == nil {
			continue
		}
		if n == 0 {
			reason = err.Reason
		}
		same = same && err.Reason == reason
		n++
	}
	return n, same
}
