package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Default ports, as the suite documents them. An offset is added to each.
const (
	AgentHTTP  = 8080
	AgentGRPC  = 8081
	BrokerHTTP = 8090
	BrokerGRPC = 8091
	IndexHTTP  = 8100
	IndexGRPC  = 8101
	MirrorHTTP = 8110
	MirrorGRPC = 8111
	Kafka      = 9092
)

var defaultPorts = []int{AgentHTTP, AgentGRPC, BrokerHTTP, BrokerGRPC, IndexHTTP, IndexGRPC, MirrorHTTP, MirrorGRPC, Kafka}

// Offsets are multiples of offsetStep, so that two blocks never share a port, and end below the ports that the kernel
// hands out to outgoing connections.
const (
	offsetStep = 50
	maxOffset  = 32_767 - Kafka
)

var taken = struct {
	sync.Mutex
	offsets map[int]bool
}{offsets: make(map[int]bool)}

// FreeOffset picks an offset whose ports are all free now and that this process has not handed out before. Another process
// may still be faster: Start tries again then.
func FreeOffset() (int, error) {
	taken.Lock()
	defer taken.Unlock()
	for range 200 {
		offset := randomOffset()
		if !taken.offsets[offset] && allFree(offset) {
			taken.offsets[offset] = true
			return offset, nil
		}
	}
	return 0, fmt.Errorf("find free ports: none of 200 port offsets below %d has all of %v free", maxOffset, defaultPorts)
}

func randomOffset() int { return (1 + rand.IntN(maxOffset/offsetStep-1)) * offsetStep }

func allFree(offset int) bool {
	for _, port := range defaultPorts {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+offset)))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
