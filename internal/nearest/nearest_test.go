package nearest_test

import (
	"strings"
	"testing"

	"github.com/databus-suite/databus/internal/nearest"
)

func TestWord(t *testing.T) {
	t.Parallel()
	known := []string{"linger", "maxBytes", "key_path", "topic", "on"}
	for word, want := range map[string]string{
		"lingre":                   "linger",
		"linge":                    "linger",
		"Linger":                   "linger",
		"max_bytes":                "maxBytes",
		"maxbites":                 "maxBytes",
		"keyPath":                  "key_path",
		"topics":                   "topic",
		"no":                       "",
		"in":                       "",
		"something":                "",
		"":                         "",
		strings.Repeat("a", 1<<20): "",
	} {
		if got := nearest.Word(word, known); got != want {
			t.Errorf("%.20q: %q, want %q", word, got, want)
		}
	}
}
