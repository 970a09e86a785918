package sender

import (
	"context"
	"sync"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
)

// producerRun is how many producer ids are asked for at once. Each lane takes one, and another whenever the broker forgot it.
const producerRun = 32

// producers hands out producer ids. Its method may run concurrently, and takes no longer than resolveWithin while the broker does
// not answer.
type producers struct {
	log brokerv1.LogServiceClient

	mu       sync.Mutex
	id, last int64
	epoch    int16
}

func (p *producers) next(ctx context.Context) (id int64, epoch int16, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id == p.last {
		ctx, cancel := context.WithTimeout(ctx, resolveWithin)
		defer cancel()
		res, err := p.log.InitProducer(ctx, &brokerv1.InitProducerRequest{Count: producerRun})
		if err != nil {
			return 0, 0, errs.From(err)
		}
		p.id, p.last, p.epoch = res.ProducerId, res.ProducerId+producerRun, int16(res.ProducerEpoch)
	}
	p.id++
	return p.id - 1, p.epoch, nil
}
