//go:build unix

package wshard

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile takes the exclusive lock of an open file. False: another open file has it. A file system without locks
// grants every lock; NFS answers EBADF for a file that is not open for writing.
func lockFile(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return false, nil
	case errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.EBADF):
		return true, nil
	}
	return false, err
}

// savingName returns the name of the temporary file of an assembly: device and inode of the journal.
func savingName(file *os.File) (string, error) {
	status, err := file.Stat()
	if err != nil {
		return "", err
	}
	found := status.Sys().(*syscall.Stat_t)
	return fmt.Sprintf(".%x-%x.saving", found.Dev, found.Ino), nil
}
