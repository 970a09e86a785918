package process

import (
	"os"
	"testing"
	"time"
)

func TestCPU(t *testing.T) {
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		now, err := CPU(os.Getpid())
		if err != nil || now < before {
			t.Fatalf("%v after %v: %v", now, before, err)
		}
		if now > before {
			return
		}
	}
	t.Fatal("ten seconds of work cost no CPU time")
}

func TestNoProcess(t *testing.T) {
	if _, err := CPU(-1); err == nil {
		t.Fatal("CPU time of no process")
	}
}
