package api

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/broker/internal/log"
)

func TestCoded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err       error
		code      errs.Code
		retryable bool
	}{
		{log.ErrInvalidBatch, errs.Invalid, false},
		{log.ErrTooLarge, errs.TooLarge, false},
		{log.ErrOffsetOutOfRange, errs.OutOfRange, false},
		{log.ErrOutOfOrderSequence, errs.Precondition, false},
		{log.ErrProducerFenced, errs.Precondition, false},
		{log.ErrNoSpace, errs.Unavailable, true},
		{log.ErrDirFailed, errs.Unavailable, true},
		{log.ErrBusy, errs.Exhausted, true},
		{log.ErrClosed, errs.Unavailable, true},
		{log.ErrCorrupt, errs.DataLoss, false},
		{fmt.Errorf("%w: %w", log.ErrBusy, context.DeadlineExceeded), errs.Exhausted, true},
		{context.Canceled, errs.Canceled, false},
		{context.DeadlineExceeded, errs.Deadline, false},
		{errDraining, errs.Unavailable, true},
		{errors.New("a bug"), errs.Internal, false},
	} {
		e := errs.From(coded(fmt.Errorf("append to t-0: %w", tc.err)))
		if e.Code != tc.code || e.Retryable != tc.retryable {
			t.Errorf("%v became %v, retryable %v", tc.err, e.Code, e.Retryable)
		}
		if tc.retryable != (e.RetryAfter > 0) {
			t.Errorf("%v: retryable %v after %v", tc.err, tc.retryable, e.RetryAfter)
		}
	}
	if coded(nil) != nil {
		t.Error("no error must stay none")
	}
	for _, k := range kinds {
		if k.next == "" && k.code != errs.OutOfRange {
			t.Errorf("%s has no next step", k.reason)
		}
	}
}
