package broker

import (
	"context"

	"github.com/databus-suite/databus/services/broker/internal/log"
)

// LogFinding is something that is wrong with a file of the log, or was.
type LogFinding = log.Finding

// LogSummary is what was looked through.
type LogSummary = log.Summary

// LogBatch is a record batch in a file of the log.
type LogBatch = log.Batch

// VerifyLog reads all of a log's data directories, which no broker may use at the time, and changes nothing.
func VerifyLog(ctx context.Context, dirs []string, report func(LogFinding)) (LogSummary, error) {
	return log.Verify(ctx, dirs, report)
}

// DumpLog passes every record batch on, partition by partition, in order.
func DumpLog(ctx context.Context, dirs []string, report func(LogFinding), fn func(LogBatch) error) (LogSummary, error) {
	return log.Dump(ctx, dirs, report, fn)
}

// RepairLog makes damaged data directories open again, leaving out what can not be read. It needs all of a broker's.
func RepairLog(ctx context.Context, dirs []string, report func(LogFinding)) error {
	return log.Repair(ctx, dirs, report)
}
