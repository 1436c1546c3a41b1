package wshard

import (
	"io"
	"strings"
	"sync"
)

// Reading of files: the header and the index on open, and exactly the requested bytes later. Implements "Reading" of
// docs/specs/wshard.md.

const pieceBytes = 1 << 20

// Options are options of Open and OpenReaderAt. The zero value is the default.
type Options struct {
	// CacheBytes bounds the decoded time chunks, or the decoded block, that are cached for windows of each block:
	// 8 MiB if 0, none if negative.
	CacheBytes int
	// NoMap reads ranges of a file instead of mapping it into memory. Arrays are then copies, and another process
	// may truncate the file without harm.
	NoMap bool
}

// File is an open episode file. It is safe for several goroutines.
type File struct {
	header  *header
	source  *source
	entries []*Entry
	byName  map[string]*Entry
	options Options

	mu       sync.Mutex
	readers  map[string]*BlockReader
	caches   *cacheSet
	info     *Info
	isClosed bool
}

// Open opens one episode file. It reads the header and the index, nothing else. A local file is mapped into memory, so
// that arrays of uncompressed blocks are views of it: use them only until Close, or Clone them.
func Open(path string, options Options) (*File, error) {
	file, err := openContainer(path, options)
	if err != nil {
		return nil, err
	}
	return file.asEpisode()
}

// OpenReaderAt opens an episode of size bytes in any source, such as an object of a store or a bytes.Reader. Its first
// 64 KiB are read at once.
func OpenReaderAt(reader io.ReaderAt, size int64, options Options) (*File, error) {
	source, err := newSource(reader, size, "the source")
	if err != nil {
		return nil, err
	}
	file, err := newFile(source, options)
	if err != nil {
		return nil, err
	}
	return file.asEpisode()
}

// openContainer opens a container of any role.
func openContainer(path string, options Options) (*File, error) {
	source, err := openPath(path, !options.NoMap)
	if err != nil {
		return nil, err
	}
	file, err := newFile(source, options)
	if err != nil {
		source.close()
		return nil, err
	}
	return file, nil
}

func newFile(source *source, options Options) (*File, error) {
	if options.CacheBytes == 0 {
		options.CacheBytes = defaultCacheBytes
	}
	data, err := source.read(0, min(headerBytes, source.size))
	if err != nil {
		return nil, err
	}
	header, err := parseHeader(data, source.size)
	if err != nil {
		return nil, err
	}
	if data, err = source.read(0, header.data); err != nil {
		return nil, err
	}
	entries, err := parseIndex(header, data)
	if err != nil {
		return nil, err
	}
	file := &File{header: header, source: source, entries: entries, options: options}
	file.byName, file.readers = make(map[string]*Entry, len(entries)), map[string]*BlockReader{}
	for _, entry := range entries {
		file.byName[entry.Name] = entry
	}
	file.caches = newCacheSet()
	return file, nil
}

// asEpisode closes and refuses a container of another role.
func (f *File) asEpisode() (*File, error) {
	if f.header.role == roleEpisode {
		return f, nil
	}
	f.Close()
	refused := errorf(Unsupported, "the file has the role %#04x, not that of an episode", f.header.role)
	if f.header.role == roleManifest {
		return nil, refused.withHint("This is a manifest of chunks: use OpenJoined.")
	}
	return nil, refused
}

// Blocks returns the names of all blocks, in the order of the index.
func (f *File) Blocks() []string {
	names := make([]string, len(f.entries))
	for i, entry := range f.entries {
		names[i] = entry.Name
	}
	return names
}

// Has reports whether the file has a block of this name.
func (f *File) Has(name string) bool { return f.byName[name] != nil }

// Alignment returns the alignment of the blocks in bytes; 0 if there is none.
func (f *File) Alignment() int { return f.header.alignment }

// Info returns the parsed metadata blocks, read on first use; nil if the file has no meta/episode.
func (f *File) Info() (*Info, error) {
	f.mu.Lock()
	found := f.info
	f.mu.Unlock()
	if found != nil || !f.Has(metaEpisode) {
		return found, nil
	}
	blocks := map[string][]byte{}
	for _, name := range []string{metaWShard, metaEpisode, metaChannels} {
		if f.Has(name) {
			data, err := f.readJSON(name)
			if err != nil {
				return nil, err
			}
			blocks[name] = data
		}
	}
	info, err := parseInfo(blocks)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.info = info
	f.mu.Unlock()
	return info, nil
}

// Block returns the reader of a block.
func (f *File) Block(name string) (*BlockReader, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if reader := f.readers[name]; reader != nil {
		return reader, nil
	}
	entry := f.byName[name]
	if entry == nil {
		return nil, errorf(NotFound, "there is no block %q", name)
	}
	reader := &BlockReader{file: f, entry: entry}
	if entry.Codec != None && f.options.CacheBytes > 0 {
		reader.cache = f.caches.add(f.options.CacheBytes)
	}
	f.readers[name] = reader
	return reader, nil
}

// Rows returns the reader of a block as the interface that joined episodes share.
func (f *File) Rows(name string) (RowReader, error) {
	reader, err := f.Block(name)
	if err != nil {
		return nil, err
	}
	return reader, nil
}

// readJSON returns the bytes of a metadata block, whose size is bounded.
func (f *File) readJSON(name string) ([]byte, error) {
	if size := f.byName[name].Size; size > maxJSONBytes {
		return nil, corruptf("block %q has %d bytes; the most is %d", name, size, maxJSONBytes)
	}
	reader, err := f.Block(name)
	if err != nil {
		return nil, err
	}
	data, err := reader.raw()
	return append([]byte{}, data...), err
}

// Close closes the file, unmaps it and drops its cache. Arrays that are views of a mapped file become invalid.
func (f *File) Close() error {
	f.mu.Lock()
	isClosed, source := f.isClosed, f.source
	f.isClosed, f.source = true, nil
	f.mu.Unlock()
	if isClosed {
		return nil
	}
	f.caches.clear()
	if source.close == nil {
		return nil
	}
	return source.close()
}

func (f *File) read(start, end int) ([]byte, error) {
	source := f.opened()
	if source == nil {
		return nil, badInputf("the file is closed")
	}
	return source.read(start, end)
}

func (f *File) opened() *source {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.source
}

// Verify reads every block, and checks its checksum, its type and its frame index, and that the metadata is complete.
func (f *File) Verify() error {
	info, err := f.Info()
	if err != nil {
		return err
	}
	if info == nil {
		return corruptf("there is no block %q", metaEpisode)
	}
	if info.Timebase.Type == TimestampsNS && !f.Has(blockTimestamps) {
		return corruptf("the timebase is timestamps_ns, but there is no block %q", blockTimestamps)
	}
	for _, entry := range f.entries {
		reader, err := f.Block(entry.Name)
		if err == nil {
			_, err = reader.Type()
		}
		if err == nil {
			err = reader.pieces(func([]byte) error { return nil })
		}
		if err != nil {
			return err
		}
		if block := strings.TrimPrefix(entry.Name, "frames/"); block != entry.Name && f.Has(block) {
			if _, err := f.FrameIndex(block); err != nil {
				return err
			}
		}
	}
	return nil
}
