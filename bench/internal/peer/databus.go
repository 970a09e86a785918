package peer

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/databus-suite/databus/bench/internal/ports"
)

// Databus starts one service of bin/databus by itself, in dir or in a directory of its own where that is empty, and waits
// until it is ready.
func Databus(ctx context.Context, root, dir, name, config string) (p *Process, httpAddr, grpcAddr string, err error) {
	httpAddr, _, err = ports.Free()
	if err == nil {
		grpcAddr, _, err = ports.Free()
	}
	if err != nil {
		return nil, "", "", err
	}
	p, err = Start(ctx, root, Spec{Name: name, Dir: dir, Bin: filepath.Join("bin", "databus"), Addr: httpAddr,
		Files: map[string]string{"config.yaml": "http_addr: " + httpAddr + "\ngrpc_addr: " + grpcAddr + "\n" + config},
		Args:  func(string) []string { return []string{name, "--config", "config.yaml"} }})
	if err != nil {
		return nil, "", "", err
	}
	if err := ready(ctx, httpAddr); err != nil {
		p.Stop()
		return nil, "", "", fmt.Errorf("%s: %w", name, err)
	}
	return p, httpAddr, grpcAddr, nil
}

func ready(ctx context.Context, addr string) error {
	for deadline := time.Now().Add(time.Minute); ; {
		resp, err := Get(ctx, "http://"+addr+"/readyz")
		if err == nil {
			return resp.Body.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready within a minute: %w", err)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Get asks for a URL; any answer but 200 is an error.
func Get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := new(http.Client).Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("GET %s: status %d", url, resp.StatusCode)
	}
	return resp, nil
}
