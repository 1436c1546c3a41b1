package wshard

import (
	"errors"
	"io"
	"os"
	"strconv"
)

const headGuessBytes = 64 << 10

// source is the bytes of a file: mapped memory, or ranges of any io.ReaderAt. The first bytes are read once, because
// they usually hold the header, the index and the metadata.
type source struct {
	size   int
	head   []byte // the whole file if it is mapped
	reader io.ReaderAt
	name   string
	close  func() error
}

func (s *source) isMapped() bool { return s.reader == nil }

func (s *source) read(start, end int) ([]byte, error) {
	if end <= len(s.head) {
		return s.head[start:end:end], nil
	}
	if s.reader == nil {
		return nil, badInputf("the file is closed")
	}
	out := make([]byte, end-start)
	count, err := s.reader.ReadAt(out, int64(start))
	if count == len(out) {
		return out, nil
	}
	var ours *Error
	if errors.As(err, &ours) {
		return nil, err
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, corruptf("the source gave %d bytes for %d…%d", count, start, end)
	}
	return nil, explainOS(err, s.name)
}

func newSource(reader io.ReaderAt, size int64, name string) (*source, error) {
	if size < 0 {
		return nil, badInputf("a source of %d bytes is not possible", size)
	}
	s := &source{size: int(size), reader: reader, name: name}
	head, err := s.read(0, min(s.size, headGuessBytes))
	s.head = head
	return s, err
}

// openPath maps a file, or reads ranges of it where mapping is not possible.
func openPath(path string, isMapped bool) (*source, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, explainOS(err, path)
	}
	status, err := file.Stat()
	if err == nil && status.IsDir() {
		err = badInputf("%s is a directory, not a file", path)
	}
	if err != nil {
		file.Close()
		return nil, explainOS(err, path)
	}
	if isMapped && status.Size() > 0 {
		if data, unmap, err := mapFile(file, int(status.Size())); err == nil {
			file.Close()
			return &source{size: len(data), head: data, name: path, close: unmap}, nil
		}
	}
	s, err := newSource(file, status.Size(), path)
	if err != nil {
		file.Close()
		return nil, err
	}
	s.close = file.Close
	return s, nil
}

func quote(text string) string { return strconv.Quote(text) }

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func max(a, b int) int {
	if a > b {
		return a
	}
	return b
}
