package api

import (
	"context"
	"errors"
	"time"

	"github.com/databus-suite/databus/internal/errs"
)

// calls ends long waits when the server drains: they would hold it up until its timeout.
type calls struct {
	drain context.Context // ends when the server drains
}

func newCalls(draining <-chan struct{}) calls {
	ctx, cancel := context.WithCancelCause(context.Background())
	// One goroutine for all calls; a server that is closed drains too.
	go func() {
		<-draining
		cancel(errDraining)
	}()
	return calls{drain: ctx}
}

// errDraining is a wait's cause when the server drains.
var errDraining = errs.New(errs.Unavailable, "SHUTTING_DOWN", "the broker is shutting down").
	WithNext("connect again, to another broker or to this one when it is back").WithRetryAfter(time.Second)

// bound returns a context that ends, with errDraining as its cause, when the server drains. stop must be called.
func (c calls) bound(ctx context.Context) (bounded context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(c.drain, func() { cancel(errDraining) })
	return ctx, func() {
		unhook()
		cancel(context.Canceled)
	}
}

// drained tells whether an error is that of a wait that the server's drain ended.
func drained(err error) bool { return errors.Is(err, errDraining) }
