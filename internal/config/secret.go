package config

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// SecretFile is the path of a file that holds a secret. Keys of this type end in _file. The secret itself is in no
// config, no variable and no log.
type SecretFile string

// maxSecret bounds what is taken for a secret, so that a wrong path is noticed.
const maxSecret = 64 << 10

// Read returns the secret without the line break at its end. An empty path returns nothing and no error.
func (f SecretFile) Read() (string, error) {
	if f == "" {
		return "", nil
	}
	info, err := os.Stat(string(f))
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	if info.Size() > maxSecret {
		return "", fmt.Errorf("read the secret in %s: the file is larger than %d bytes", string(f), maxSecret)
	}
	raw, err := os.ReadFile(string(f))
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	secret := strings.TrimRight(string(raw), "\r\n")
	if secret == "" {
		return "", errors.New("read the secret in " + string(f) + ": the file is empty")
	}
	return secret, nil
}
