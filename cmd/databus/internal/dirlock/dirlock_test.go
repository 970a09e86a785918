package dirlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/databus-suite/databus/internal/errs"
)

func TestSecondIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "on", "demand")
	first, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Note(map[string]string{"broker": "127.0.0.1:8090"}); err != nil {
		t.Fatal(err)
	}

	_, err = Acquire(dir)
	var e *errs.Error
	if !errors.As(err, &e) || e.Reason != "DATA_DIR_IN_USE" {
		t.Fatalf("second Acquire: got %v, want DATA_DIR_IN_USE", err)
	}
	for _, want := range []string{dir, fmt.Sprint(os.Getpid())} {
		if !strings.Contains(e.Message, want) {
			t.Errorf("message %q does not name %s", e.Message, want)
		}
	}
	if !strings.Contains(e.Next, "--data") || !strings.Contains(e.Next, "kill") {
		t.Errorf("next step %q says neither what to stop nor what to give", e.Next)
	}
	if e.Meta["broker"] != "127.0.0.1:8090" {
		t.Errorf("meta %v has no address of the broker", e.Meta)
	}

	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := Acquire(dir)
	if err != nil {
		t.Fatalf("Acquire after Release: %v", err)
	}
	if err := again.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestLeftoverNoteIsNoLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(`{"pid":1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoryThatCannotBeMade(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Acquire(filepath.Join(file, "below"))
	if errs.CodeOf(err) != errs.Precondition {
		t.Fatalf("got %v, want a precondition error", err)
	}
}
