// Package privatepg runs a Postgres server of its own for a suite in one process: it finds the programs on the machine, makes a
// cluster in its directory, starts it, and stops it with the suite.
//
// It owns that directory and the server's life. It may not know what is kept in the database. Two servers on one directory are
// prevented by whoever owns the directory around it, not here.
package privatepg
