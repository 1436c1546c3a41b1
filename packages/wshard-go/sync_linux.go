package wshard

import (
	"os"
	"syscall"
)

// syncData forces the bytes and the size of a file to the disk.
func syncData(file *os.File) error { return syscall.Fdatasync(int(file.Fd())) }
