package databus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/services/databus/internal/keep"
)

// identity says who this agent is: the same on one data directory, whatever restarts.
func identity(cfg Config, version string) (*databusv1.AgentInfo, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	info := &databusv1.AgentInfo{AgentId: uuid.NewString(), Host: host, Labels: cfg.Labels, Version: version}
	if cfg.DataDir == "" {
		return info, nil
	}
	path := filepath.Join(cfg.DataDir, "agent-id")
	data, err := os.ReadFile(path)
	switch {
	case err == nil && uuid.Validate(strings.TrimSpace(string(data))) == nil:
		info.AgentId = strings.TrimSpace(string(data))
		return info, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("agent: read its id; check data_dir: %w", err)
	}
	if err := keep.File(path, []byte(info.AgentId+"\n")); err != nil {
		return nil, fmt.Errorf("agent: keep its id; check data_dir: %w", err)
	}
	return info, nil
}
