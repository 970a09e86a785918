// Package memory owns the agent's bound on bytes held in memory: the global one and each channel's share. It knows numbers
// only: no channels, no requests, no batches.
package memory

import (
	"errors"
	"sync/atomic"
)

// The reasons for a refusal.
var (
	// ErrFull means that the agent as a whole holds as much as it may.
	ErrFull = errors.New("memory is full")
	// ErrShare means that this share holds as much as it may; others still have room.
	ErrShare = errors.New("the channel's share of memory is full")
)

// Pool is the bound of the whole agent. All methods may run concurrently; there is nothing to close.
type Pool struct {
	limit int64
	used  atomic.Int64
}

// NewPool returns a pool of limit bytes.
func NewPool(limit int64) *Pool { return &Pool{limit: limit} }

// Limit is the bound in bytes.
func (p *Pool) Limit() int64 { return p.limit }

// Used is how many bytes are held now.
func (p *Pool) Used() int64 { return p.used.Load() }

// Reserve takes n bytes that belong to no channel yet, such as a request's body, or returns ErrFull.
func (p *Pool) Reserve(n int64) error {
	if p.used.Add(n) > p.limit {
		p.used.Add(-n)
		return ErrFull
	}
	return nil
}

// Release gives n bytes back.
func (p *Pool) Release(n int64) { p.used.Add(-n) }

// Share is what one channel holds of a pool. All methods may run concurrently; there is nothing to close.
type Share struct {
	pool  *Pool
	limit atomic.Int64
	used  atomic.Int64
}

// NewShare returns a share of the pool; limit 0 means a quarter of it.
func (p *Pool) NewShare(limit int64) *Share {
	s := &Share{pool: p}
	s.SetLimit(limit)
	return s
}

// SetLimit changes the bound; what is held beyond it stays until it is released.
func (s *Share) SetLimit(limit int64) {
	if limit <= 0 {
		limit = s.pool.limit / 4
	}
	s.limit.Store(min(limit, s.pool.limit))
}

// Limit is the bound in bytes.
func (s *Share) Limit() int64 { return s.limit.Load() }

// Used is how many bytes the share holds now.
func (s *Share) Used() int64 { return s.used.Load() }

// Reserve takes n bytes, or returns ErrShare or ErrFull.
//
// Besides its own limit a share may not hold more than what the whole pool has left: a stuck channel takes at most half of
// what the others leave, however their limits add up. One that holds nothing is let in while there is any room, so that a
// channel which is not stuck goes on.
func (s *Share) Reserve(n int64) error {
	mine := s.used.Add(n)
	all := s.pool.used.Add(n)
	var err error
	switch {
	case all > s.pool.limit:
		err = ErrFull
	case mine > s.limit.Load() || mine > n && mine > s.pool.limit-all:
		err = ErrShare
	default:
		return nil
	}
	s.Release(n)
	return err
}

// Release gives n bytes back.
func (s *Share) Release(n int64) {
	s.used.Add(-n)
	s.pool.used.Add(-n)
}
