package main

import (
	"os"
	"testing"
)

// asDatabus makes a child of the test binary behave as bin/databus, so that processes and signals are real and nothing has to be
// built.
const asDatabus = "TEST_AS_DATABUS"

func TestMain(m *testing.M) {
	if os.Getenv(asDatabus) != "" {
		os.Exit(run(os.Args[1:], newTerminal(os.Stdin, os.Stdout, os.Stderr)))
	}
	os.Exit(m.Run())
}
