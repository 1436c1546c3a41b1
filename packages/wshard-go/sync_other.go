//go:build !linux

package wshard

import "os"

// syncData forces the bytes and the size of a file to the disk.
func syncData(file *os.File) error { return file.Sync() }
