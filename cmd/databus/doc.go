// Command databus hosts every service of the suite and the client commands.
//
// It owns the command line: flags, help, exit codes, and what goes to standard output and standard error. It may not know
// how a service works inside: services are started through their public face (LoadConfig, New, Run), and client commands
// speak to them through the generated Connect clients, so that one address (the HTTP port) is enough.
//
// One file a subcommand. To add one: write a struct with a Run method and a Help method with two or three examples in
// a file of its own, and add a field to commands in cli.go.
package main
