// Package live holds black-box tests of what an agent promises while it runs: its channels change under load, its clients
// misbehave, its binary is replaced, its broker is slow. They run the real binary, one process a service.
//
// Sizes are small by default. DATABUS_LIVE_AGENTS, DATABUS_LIVE_CONNECTIONS, DATABUS_LIVE_RATE (messages a second) and
// DATABUS_LIVE_CHANGES ask for more.
package live
