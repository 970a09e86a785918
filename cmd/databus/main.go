package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], newTerminal(os.Stdin, os.Stdout, os.Stderr)))
}
