package intake

import (
	"testing"
	"time"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/wirejson"
)

func TestFailuresOfOneRequest(t *testing.T) {
	t.Parallel()
	away := errs.New(errs.Unavailable, "BROKER_UNAVAILABLE", "x").WithRetryAfter(time.Second)
	inFlight := errs.New(errs.Unavailable, "ID_IN_FLIGHT", "x").WithRetryAfter(3 * time.Second)
	full := errs.New(errs.Exhausted, "LANES_FULL", "x").WithRetryAfter(2 * time.Second)
	lane, route := errs.New(errs.Invalid, "BAD_LANE", "x"), errs.New(errs.Invalid, "NO_ROUTE", "x")
	for name, tc := range map[string]struct {
		all  []*errs.Error
		n    int
		same bool
		wait time.Duration
	}{
		"none":                 {[]*errs.Error{nil, nil}, 0, true, 0},
		"one reason":           {[]*errs.Error{lane, lane}, 2, true, 0},
		"two rules broken":     {[]*errs.Error{lane, route}, 2, false, 0},
		"two reasons to wait":  {[]*errs.Error{away, inFlight}, 2, true, 3 * time.Second},
		"two codes":            {[]*errs.Error{away, full}, 2, false, 2 * time.Second},
		"some":                 {[]*errs.Error{nil, away}, 1, true, time.Second},
		"some may be repeated": {[]*errs.Error{nil, lane, away}, 2, false, time.Second},
	} {
		results := make([]wirejson.Result, len(tc.all))
		for i, err := range tc.all {
			results[i].Err = err
		}
		if n, same, wait := failures(results); n != tc.n || same != tc.same || wait != tc.wait {
			t.Errorf("%s: %d, %t, %s, want %d, %t, %s", name, n, same, wait, tc.n, tc.same, tc.wait)
		}
	}
}
