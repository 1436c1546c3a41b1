package wshard

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// Writing of containers: entries in the order of their offsets, no overlap, zeros in between. Episodes in memory and
// episodes assembled from a journal share this code. Implements "Writing" of docs/specs/wshard.md.

const (
	writeBufferBytes   = 1 << 20
	maxTemporaryPrefix = 200
)

// pieceSource passes the bytes of a block in pieces. Each call passes the same bytes.
type pieceSource func(pass func([]byte) error) error

// blockPlan is a block to be written. chunkBytes splits a zstd block into time chunks; 0 writes a single frame.
type blockPlan struct {
	name        string
	size        int
	pieces      pieceSource
	contentType uint16
	tags        uint16
	compression Compression
	chunkBytes  int
}

func planBytes(name string, data []byte, contentType, tags uint16) blockPlan {
	pieces := func(pass func([]byte) error) error { return pass(data) }
	return blockPlan{name: name, size: len(data), pieces: pieces, contentType: contentType, tags: tags}
}

// containerOptions are options of the whole file. temporary is its name until it is complete, and must not exist; the
// default is a random name in the same directory.
type containerOptions struct {
	role         uint8
	alignment    int
	defaultCodec Codec
	isSealed     bool
	isVolatile   bool // nothing is synced
	temporary    string
}

// writeContainer writes all blocks and renames the file into place. It returns the identity if the file is sealed.
func writeContainer(path string, plans []blockPlan, options containerOptions) (string, error) {
	names := make([]string, 0, len(plans)+1)
	for _, plan := range plans {
		names = append(names, plan.name)
	}
	if options.isSealed {
		names = append(names, metaIdentity)
	}
	if err := checkNames(names, options.alignment); err != nil {
		return "", err
	}
	for _, plan := range plans {
		if err := plan.check(); err != nil {
			return "", err
		}
	}
	if options.temporary == "" {
		options.temporary = temporaryBeside(path)
	}
	file, err := os.OpenFile(options.temporary, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return "", explainOS(err, path)
	}
	sealed, err := newLayout(file, names, options).write(plans)
	if err == nil && !options.isVolatile {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(options.temporary, path)
	}
	if err != nil {
		os.Remove(options.temporary)
		return "", explainOS(err, path)
	}
	if !options.isVolatile {
		err = syncDirectory(filepath.Dir(path))
	}
	return sealed, explainOS(err, path)
}

// temporaryBeside returns a random name. A long name is left out, so that every valid name has a temporary one.
func temporaryBeside(path string) string {
	var random [8]byte
	rand.Read(random[:])
	name := filepath.Base(path)
	if len(name) > maxTemporaryPrefix {
		name = ""
	}
	return filepath.Join(filepath.Dir(path), "."+name+"."+hex.EncodeToString(random[:])+".tmp")
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	defer directory.Close()
	// Some systems and file systems cannot sync directories.
	if err := directory.Sync(); err != nil && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}

func checkNames(names []string, alignment int) error {
	if !isAlignment(alignment) {
		return badInputf("the alignment %d is not one of 0, 16, 32, 64", alignment)
	}
	seen, total := make(map[string]bool, len(names)), 0
	for _, name := range names {
		if seen[name] {
			return badInputf("two blocks have the same name: %.80q", name)
		}
		if !utf8.ValidString(name) {
			return badInputf("the block name %.80q is not Unicode", name)
		}
		if name == "" || len(name) > maxNameBytes {
			return badInputf("a block name is empty or longer than %d bytes", maxNameBytes)
		}
		seen[name] = true
		total += len(name)
	}
	if len(names) > maxEntries || total > maxNamesBytes {
		return errorf(LimitExceeded, "the file would have %d blocks with %d bytes of names, which exceeds the limits", len(names), total)
	}
	return nil
}

func (p *blockPlan) codec() Codec {
	if p.size < minCompressed {
		return None
	}
	return p.compression.Codec
}

// check refuses a block that no reader would decode, before anything is written.
func (p *blockPlan) check() error {
	codec := p.codec()
	if err := p.compression.check(); err != nil || codec == None {
		return err
	}
	if p.chunkBytes > 0 && codec != Zstd {
		return badInputf("block %q cannot have time chunks in %s, only in zstd", p.name, codec)
	}
	if !isDecodable(p.size, p.chunkBytes) {
		return errorf(LimitExceeded, "block %q has %d bytes in time chunks of %d (0: one frame); readers accept at most %d chunks of at most %d bytes",
			p.name, p.size, p.chunkBytes, maxChunks, maxDecodedBytes).
			withHint("Leave it uncompressed, choose other time chunks, or split the episode with ChunkedWriter.")
	}
	return nil
}

// isDecodable reports whether readers accept a compressed block of this size, in one frame if chunkBytes is 0.
func isDecodable(size, chunkBytes int) bool {
	if chunkBytes == 0 {
		return size <= maxDecodedBytes
	}
	count := size / chunkBytes
	if size%chunkBytes > 0 {
		count++
	}
	return min(size, chunkBytes) <= maxDecodedBytes && count <= maxChunks
}

// layout is a file that is being written: blocks first, then the header and the index.
type layout struct {
	file    *os.File
	names   []string
	options containerOptions
	header  header
	entries []*Entry
	hashes  map[string]any
}

func newLayout(file *os.File, names []string, options containerOptions) *layout {
	l := &layout{file: file, names: names, options: options, hashes: map[string]any{}}
	namesAt := headerBytes + entryBytes*len(names)
	nameBytes := 0
	for _, name := range names {
		nameBytes += len(name)
	}
	l.header = header{options.role, flagLittleEndian | flagHasChecksums | flagHasContentTypes, options.alignment,
		options.defaultCodec, len(names), namesAt, l.aligned(namesAt + nameBytes), 0}
	return l
}

func (l *layout) aligned(offset int) int {
	unit := max(l.options.alignment, 1)
	return (offset + unit - 1) / unit * unit
}

func (l *layout) write(plans []blockPlan) (string, error) {
	end := l.header.data
	var err error
	for _, plan := range plans {
		if end, err = l.writeBlock(plan, end); err != nil {
			return "", err
		}
	}
	sealed := ""
	if l.options.isSealed {
		seal, err := sealBytes(l.hashes)
		if err != nil {
			return "", err
		}
		if end, err = l.writeBlock(planBytes(metaIdentity, seal, contentJSON, 0), end); err != nil {
			return "", err
		}
		sealed = sha256Hex(seal)
	}
	l.header.total = end
	if err := l.file.Truncate(int64(end)); err != nil {
		return "", err
	}
	return sealed, l.writeIndex()
}

// writeBlock writes one block at the next aligned offset, and returns its end.
func (l *layout) writeBlock(plan blockPlan, end int) (int, error) {
	start := l.aligned(end)
	// Empty blocks get offsets of their own too, because offsets must ascend.
	if count := len(l.entries); count > 0 && l.entries[count-1].Offset == start {
		start = l.aligned(start + 1)
	}
	codec := plan.codec()
	meter := newMeter(plan, l.options.isSealed)
	stored, err := l.writeAt(start, func(out io.Writer) error { return encodeBlock(out, plan, codec, meter.pass) })
	if err == nil && codec != None && stored >= plan.size {
		codec, meter = None, newMeter(plan, l.options.isSealed)
		stored, err = l.writeAt(start, func(out io.Writer) error { return encodeBlock(out, plan, None, meter.pass) })
	}
	if err != nil {
		return 0, err
	}
	if meter.size != plan.size {
		return 0, badInputf("block %q has %d bytes instead of %d", plan.name, meter.size, plan.size)
	}
	l.entries = append(l.entries, &Entry{plan.name, codec, plan.chunkBytes > 0 && codec == Zstd, start, stored, plan.size,
		meter.checksum, plan.contentType, plan.tags})
	if meter.hasher != nil {
		l.hashes[plan.name] = hex.EncodeToString(meter.hasher.Sum(nil))
	}
	return start + stored, nil
}

// writeAt truncates the file first, so that the gap between the blocks reads as zeros.
func (l *layout) writeAt(start int, encode func(io.Writer) error) (int, error) {
	if err := l.file.Truncate(int64(start)); err != nil {
		return 0, err
	}
	if _, err := l.file.Seek(int64(start), io.SeekStart); err != nil {
		return 0, err
	}
	counter := &countingWriter{out: l.file}
	buffered := bufio.NewWriterSize(counter, writeBufferBytes)
	err := encode(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	return counter.count, err
}

func (l *layout) writeIndex() error {
	out := l.header.encode()
	at := 0
	for _, entry := range l.entries {
		out = append(out, entry.encode(at)...)
		at += len(entry.Name)
	}
	for _, name := range l.names {
		out = append(out, name...)
	}
	_, err := l.file.WriteAt(out, 0)
	return err
}

func encodeBlock(out io.Writer, plan blockPlan, codec Codec, pieces pieceSource) error {
	switch {
	case codec == None:
		return pieces(func(piece []byte) error {
			_, err := out.Write(piece)
			return err
		})
	case plan.chunkBytes > 0:
		return writeChunks(out, plan.compression.Level, plan.chunkBytes, pieces)
	case codec == Zstd:
		return compressZstd(out, plan.compression.Level, plan.size, pieces)
	}
	var whole []byte
	if err := pieces(func(piece []byte) error { whole = append(whole, piece...); return nil }); err != nil {
		return err
	}
	packed, err := compressLZ4(whole, plan.compression.Level)
	if err == nil {
		_, err = out.Write(packed)
	}
	return err
}

// meter counts, checksums and hashes the bytes of a block while they are written.
type meter struct {
	plan     blockPlan
	size     int
	checksum uint32
	hasher   hash.Hash
}

func newMeter(plan blockPlan, isHashed bool) *meter {
	m := &meter{plan: plan}
	if isHashed {
		m.hasher = sha256.New()
	}
	return m
}

func (m *meter) pass(pass func([]byte) error) error {
	return m.plan.pieces(func(piece []byte) error {
		m.size += len(piece)
		m.checksum = checksum(m.checksum, piece)
		if m.hasher != nil {
			m.hasher.Write(piece)
		}
		return pass(piece)
	})
}

type countingWriter struct {
	out   io.Writer
	count int
}

func (w *countingWriter) Write(data []byte) (int, error) {
	count, err := w.out.Write(data)
	w.count += count
	return count, err
}
