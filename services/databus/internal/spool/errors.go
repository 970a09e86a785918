package spool

import "errors"

var (
	// ErrFull means that the channel has as much on disk as it may, and its policy gives no room.
	ErrFull = errors.New("the channel's spool is full")
	// ErrTooLarge means a batch that could never fit in the channel's spool.
	ErrTooLarge = errors.New("larger than the channel's spool")
	// ErrDisk means that the batch could not be written or synced. It is not in the spool; a later one may be.
	ErrDisk = errors.New("the spool's disk failed")
	// ErrClosed means that the spool is closed.
	ErrClosed = errors.New("the spool is closed")
	// ErrVersion means files of a format that this version does not read.
	ErrVersion = errors.New("unknown format")
	// ErrDamaged means that a batch can not be read back. It was dropped and counted.
	ErrDamaged = errors.New("damaged on disk")
	// ErrName means a topic or channel name that the format can not hold.
	ErrName = errors.New("name is empty or longer than 255 bytes")
)
