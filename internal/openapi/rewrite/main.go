// Command rewrite makes the OpenAPI document named on its command line true, in place.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/databus-suite/databus/internal/openapi"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rewrite:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: rewrite FILE")
	}
	doc, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	out, err := openapi.Rewrite(doc)
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], out, 0o644)
}
