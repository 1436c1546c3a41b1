package wshard

import (
	"bytes"
	"encoding/binary"
	"math"
	"sort"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// The container: header, index and names. Every offset, size and count is checked against the file before use.
// Implements "Container" of docs/specs/wshard.md.

const (
	containerMagic   = "SHRD"
	containerVersion = 2
	roleManifest     = 4
	roleEpisode      = 5
	headerBytes      = 64
	entryBytes       = 48
	maxGapBytes      = 4096
	contentJSON      = 2

	flagLittleEndian    = 0x0002
	flagBigEndian       = 0x0004
	flagHasChecksums    = 0x0020
	flagHasContentTypes = 0x0080

	entryCompressed, entryZstd, entryLZ4, entryChunked = 1, 2, 4, 8
)

// header is the first 64 bytes.
type header struct {
	role         uint8
	flags        uint16
	alignment    int
	defaultCodec Codec
	count        int
	names        int
	data         int
	total        int
}

func (h *header) indexEnd() int      { return headerBytes + entryBytes*h.count }
func (h *header) hasChecksums() bool { return h.flags&flagHasChecksums != 0 }

// Entry is the index entry of one block. Offset counts from the start of the file; Size is the number of bytes after
// decoding.
type Entry struct {
	Name        string
	Codec       Codec
	IsChunked   bool // the block has time chunks
	Offset      int
	Stored      int
	Size        int
	Checksum    uint32
	ContentType uint16
	Tags        uint16
}

func (e *Entry) end() int { return e.Offset + e.Stored }

func isAlignment(value int) bool { return value == 0 || value == 16 || value == 32 || value == 64 }

func parseHeader(data []byte, fileBytes int) (*header, error) {
	if len(data) < headerBytes {
		return nil, corruptf("the file has %d bytes; its header alone takes %d", fileBytes, headerBytes)
	}
	word := binary.LittleEndian
	if string(data[:4]) != containerMagic {
		return nil, corruptf("the file begins with %q, not with %q", data[:4], containerMagic)
	}
	if data[4] != containerVersion {
		return nil, unsupportedf("the container has version %d; this library reads version %d", data[4], containerVersion)
	}
	flags, width := word.Uint16(data[6:]), word.Uint16(data[10:])
	if flags&flagBigEndian != 0 {
		return nil, unsupportedf("the file is big-endian; this library reads little-endian files")
	}
	if width != entryBytes {
		return nil, unsupportedf("index entries have %d bytes; this library reads %d", width, entryBytes)
	}
	if !isAlignment(int(data[8])) || data[9] > uint8(LZ4) {
		return nil, corruptf("alignment %d or compression %d does not exist in the format", data[8], data[9])
	}
	count := word.Uint32(data[12:])
	names, blocks, schema, total := word.Uint64(data[16:]), word.Uint64(data[24:]), word.Uint64(data[32:]), word.Uint64(data[40:])
	if total != uint64(fileBytes) {
		return nil, corruptf("the header promises %d bytes, the file has %d", total, fileBytes)
	}
	if count > maxEntries {
		return nil, errorf(LimitExceeded, "the index has %d entries; the most is %d", count, maxEntries)
	}
	indexEnd := uint64(headerBytes + entryBytes*int(count))
	if indexEnd > names || names > blocks || blocks > total || schema > total {
		return nil, corruptf("index end %d, names %d, data %d, schema %d do not fit in %d bytes", indexEnd, names, blocks, schema, total)
	}
	if names-indexEnd > maxGapBytes {
		return nil, corruptf("there are %d bytes between the index and the names", names-indexEnd)
	}
	if blocks-names > maxNamesBytes {
		return nil, errorf(LimitExceeded, "the names take %d bytes; the most is %d", blocks-names, maxNamesBytes)
	}
	return &header{data[5], flags, int(data[8]), Codec(data[9]), int(count), int(names), int(blocks), int(total)}, nil
}

// parseIndex parses the entries, in the order of the index. data is the file up to its data section.
func parseIndex(h *header, data []byte) ([]*Entry, error) {
	if len(bytes.Trim(data[h.indexEnd():h.names], "\x00")) > 0 {
		return nil, corruptf("the gap between the index and the names is not zero")
	}
	names, index := data[h.names:h.data], data[headerBytes:h.indexEnd()]
	// Names may share bytes, so a small file could hold very many long names.
	nameBytes := 0
	for at := 0; at < len(index); at += entryBytes {
		nameBytes += int(binary.LittleEndian.Uint16(index[at+12:]))
	}
	if nameBytes > maxNamesBytes {
		return nil, errorf(LimitExceeded, "the names of all blocks take %d bytes; the most is %d", nameBytes, maxNamesBytes)
	}
	entries := make([]*Entry, 0, h.count)
	seen := make(map[string]bool, h.count)
	isRepeated := false
	for at := 0; at < len(index); at += entryBytes {
		entry, err := parseEntry(h, index[at:at+entryBytes], names)
		if err != nil {
			return nil, err
		}
		isRepeated = isRepeated || seen[entry.Name]
		seen[entry.Name] = true
		entries = append(entries, entry)
	}
	if isRepeated {
		return nil, corruptf("two blocks have the same name")
	}
	return entries, checkOverlap(entries)
}

func parseEntry(h *header, row, names []byte) (*Entry, error) {
	word := binary.LittleEndian
	nameAt, nameBytes := int(word.Uint32(row[8:])), int(word.Uint16(row[12:]))
	if nameAt+nameBytes > len(names) || nameBytes == 0 {
		return nil, corruptf("a name at %d+%d is outside the %d bytes of names", nameAt, nameBytes, len(names))
	}
	raw := names[nameAt : nameAt+nameBytes]
	if hash := word.Uint64(row); xxhash.Sum64(raw) != hash {
		return nil, corruptf("the name %.80q does not match the hash %016x", raw, hash)
	}
	if !utf8.Valid(raw) {
		return nil, corruptf("the name %.80q is not UTF-8", raw)
	}
	name := string(raw)
	flags := word.Uint16(row[14:])
	codec, err := codecOf(flags, h, name)
	if err != nil {
		return nil, err
	}
	offset, stored, size := word.Uint64(row[16:]), word.Uint64(row[24:]), word.Uint64(row[32:])
	if offset < uint64(h.data) || offset > uint64(h.total) || stored > uint64(h.total)-offset {
		return nil, corruptf("block %q at %d+%d is outside the data section", name, offset, stored)
	}
	if h.alignment > 0 && offset%uint64(h.alignment) != 0 {
		return nil, corruptf("block %q at %d is not aligned to %d", name, offset, h.alignment)
	}
	isChunked := flags&entryChunked != 0
	// No valid block is as large, and every later check refuses the largest number.
	if size > math.MaxInt64 {
		size = math.MaxInt64
	}
	if codec == None {
		if stored != size {
			return nil, corruptf("block %q is not compressed, but stores %d bytes in %d", name, size, stored)
		}
	} else if !isChunked {
		if err := checkExpansion(codec, int(stored), int(size), "block "+quote(name)); err != nil {
			return nil, err
		}
	}
	return &Entry{name, codec, isChunked, int(offset), int(stored), int(size), word.Uint32(row[40:]), word.Uint16(row[44:]), word.Uint16(row[46:])}, nil
}

func codecOf(flags uint16, h *header, name string) (Codec, error) {
	if flags&^(entryCompressed|entryZstd|entryLZ4|entryChunked) != 0 {
		return 0, unsupportedf("block %q has the unknown flags 0x%04x", name, flags)
	}
	if flags&entryCompressed == 0 {
		if flags != 0 {
			return 0, corruptf("block %q has the flags 0x%04x: a codec, but not compressed", name, flags)
		}
		return None, nil
	}
	codec := h.defaultCodec
	switch flags & (entryZstd | entryLZ4) {
	case entryZstd | entryLZ4:
		return 0, corruptf("block %q has the flags of both zstd and lz4", name)
	case entryZstd:
		codec = Zstd
	case entryLZ4:
		codec = LZ4
	}
	if codec == None {
		return 0, corruptf("block %q is compressed, but nothing says how: neither its flags nor the header name a codec", name)
	}
	if flags&entryChunked != 0 && codec != Zstd {
		return 0, unsupportedf("block %q has time chunks in %s; only zstd supports them", name, codec)
	}
	return codec, nil
}

func checkOverlap(entries []*Entry) error {
	sorted := append([]*Entry{}, entries...)
	sort.Slice(sorted, func(i, j int) bool {
		left, right := sorted[i], sorted[j]
		return left.Offset < right.Offset || (left.Offset == right.Offset && left.Stored < right.Stored)
	})
	end, before := 0, ""
	for _, entry := range sorted {
		if entry.Offset < end {
			return corruptf("blocks %q and %q overlap at byte %d", before, entry.Name, entry.Offset)
		}
		end, before = entry.end(), entry.Name
	}
	return nil
}

func (h *header) encode() []byte {
	out := make([]byte, headerBytes)
	word := binary.LittleEndian
	copy(out, containerMagic)
	out[4], out[5] = containerVersion, h.role
	word.PutUint16(out[6:], h.flags)
	out[8], out[9] = uint8(h.alignment), uint8(h.defaultCodec)
	word.PutUint16(out[10:], entryBytes)
	word.PutUint32(out[12:], uint32(h.count))
	word.PutUint64(out[16:], uint64(h.names))
	word.PutUint64(out[24:], uint64(h.data))
	word.PutUint64(out[40:], uint64(h.total))
	return out
}

func (e *Entry) encode(nameAt int) []byte {
	out := make([]byte, entryBytes)
	word := binary.LittleEndian
	flags := [...]uint16{0, entryCompressed | entryZstd, entryCompressed | entryLZ4}[e.Codec]
	if e.IsChunked {
		flags |= entryChunked
	}
	word.PutUint64(out, xxhash.Sum64String(e.Name))
	word.PutUint32(out[8:], uint32(nameAt))
	word.PutUint16(out[12:], uint16(len(e.Name)))
	word.PutUint16(out[14:], flags)
	word.PutUint64(out[16:], uint64(e.Offset))
	word.PutUint64(out[24:], uint64(e.Stored))
	word.PutUint64(out[32:], uint64(e.Size))
	word.PutUint32(out[40:], e.Checksum)
	word.PutUint16(out[44:], e.ContentType)
	word.PutUint16(out[46:], e.Tags)
	return out
}
