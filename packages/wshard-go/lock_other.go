//go:build !unix

package wshard

import (
	"os"
	"path/filepath"
)

// lockFile grants every lock: this system has no flock.
func lockFile(*os.File) (bool, error) { return true, nil }

func savingName(file *os.File) (string, error) {
	return "." + filepath.Base(file.Name()) + ".saving", nil
}
