// Package telemetry owns how a process of the suite is observed: its tracer and meter providers, the registry
// behind /metrics, the W3C trace context as it moves between contexts and record headers, and the log handler
// that puts trace ids on every line.
//
// It sets no OpenTelemetry global, so that several services in one process keep apart. It knows no service, and
// no span or metric by name: those belong to the rooms that make them.
package telemetry
