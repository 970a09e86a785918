package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// sources are the trees that the binary is built from.
var sources = []string{"cmd", "gen", "internal", "services", "go.mod", "go.sum"}

// Root is the root of the repository.
func Root() (string, error) {
	_, here, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(here) {
		// Built with -trimpath: fall back on the working directory of `go test`, which is a package's folder.
		wd, err := os.Getwd()
		if err != nil {
			return "", fmt.Errorf("find the repository's root: %w", err)
		}
		here = filepath.Join(wd, "x")
	}
	for dir := filepath.Dir(here); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("find the repository's root: no go.work above %s", here)
}

// Build compiles cmd/databus into dir and returns the path of the binary. DATABUS_TEST_BINARY names a binary to use as it
// is instead, such as one built with -race or -cover.
func Build(dir string) (string, error) {
	if given := os.Getenv("DATABUS_TEST_BINARY"); given != "" {
		return given, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	if err := touchSources(root); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "databus")
	build := exec.Command("go", "build", "-o", binary, "./cmd/databus") // -trimpath would compile all of it once more
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cmd/databus: %w\n%s", err, out)
	}
	return binary, nil
}

// touchSources stats every file that the binary is built from. `go test` remembers what a test looked at: this is how it
// learns that a cached result of a black-box test is void once the product's code changed.
func touchSources(root string) error {
	for _, tree := range sources {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			_, err = os.Stat(path)
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look at the sources in %s: %w", tree, err)
		}
	}
	return nil
}
