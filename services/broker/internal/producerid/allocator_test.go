package producerid

import (
	"sync"
	"testing"

	"github.com/databus-suite/databus/internal/natskv"
)

func TestIdsAreHandedOutOnce(t *testing.T) {
	t.Parallel()
	s, err := natskv.StartServer(t.Context(), natskv.ServerConfig{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := s.Connect(t.Context(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var mu sync.Mutex
	seen := map[int64]bool{}
	var wg sync.WaitGroup
	for i := range 4 { // four brokers
		a, err := Open(t.Context(), conn, 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			wg.Go(func() {
				for range 100 {
					count := int64(1 + i*3)
					first, err := a.Take(t.Context(), count)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for id := first; id < first+count; id++ {
						if seen[id] {
							t.Errorf("id %d was handed out twice", id)
						}
						seen[id] = true
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	a, err := Open(t.Context(), conn, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Take(t.Context(), 5000); err != nil {
		t.Errorf("more than a block at once: %v", err)
	}
}
