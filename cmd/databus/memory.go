package main

import (
	"os"
	"runtime/debug"
)

const (
	// gcPercent is how much a service's heap may grow, in percent of what lives, before the collector runs: what lives is small
	// next to what passes through, and Go's own 100 would have the collector run many times a second.
	gcPercent = 400
	// beside is what a process needs besides the messages that its services hold.
	beside = 1 << 30
)

// tuneGC spends memory that the services' bounds allow on fewer collections. bounds are their memory_bytes. As the heap comes
// near twice their sum the collector runs as often as it must. GOGC and GOMEMLIMIT in the environment win.
func tuneGC(bounds ...int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := int64(beside)
	for _, b := range bounds {
		limit += 2 * b
	}
	debug.SetMemoryLimit(limit)
}
