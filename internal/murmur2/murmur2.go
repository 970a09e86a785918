// Package murmur2 owns Kafka's hash of a key, so that Databus and any Kafka
// client put the same key in the same partition. It knows bytes only, and
// imports nothing of this module. All functions are safe for concurrent use.
package murmur2

import "encoding/binary"

const (
	seed  = 0x9747b28c
	mul   = 0x5bd1e995
	shift = 24
)

// Sum returns the hash, signed as in Java.
func Sum(key []byte) int32 {
	h := uint32(seed) ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key) * mul
		k ^= k >> shift
		h = h*mul ^ k*mul
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * mul
	}
	h = (h ^ h>>13) * mul
	return int32(h ^ h>>15)
}

// Partition returns which of n partitions the key belongs to; n is at least 1.
// Like Kafka it clears the sign bit, which is not the absolute value.
func Partition(key []byte, n int32) int32 {
	return Sum(key) & 0x7fffffff % n
}
