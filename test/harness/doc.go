// Package harness runs the real binary for black-box tests: it builds bin/databus's source once, starts `databus dev` on a
// directory and a block of ports of its own, waits for its ready line, stops or kills it, starts it again on the same
// directory, and shows what it logged when a test fails. It also finds the shared test data.
//
// It may not know any service's code: it speaks to the suite through the command line and the generated clients only.
package harness
