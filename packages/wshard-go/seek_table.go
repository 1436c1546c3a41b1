package wshard

import (
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"sort"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// Time chunks: a block in independent zstd frames, each with a checksum, and a table of them in a skippable frame.
// Implements "Time chunks" of docs/specs/wshard.md.

const (
	skippableMagic    = 0x184D2A5E
	seekMagic         = 0x8F92EAB1
	seekHasChecksums  = 0x80
	skippableBytes    = 8
	seekRowBytes      = 12
	seekFooterBytes   = 9
	untouchedReadSize = 64 << 20
)

// seekTable has the boundaries of the chunks: stored in the bytes of the block, decoded in the decoded bytes.
type seekTable struct {
	entry     *Entry
	stored    []int
	decoded   []int
	checksums []uint32
}

type readRange func(start, end int) ([]byte, error)

// readSeekTable reads the table from the end of the block, and checks every size in it against the entry.
func readSeekTable(entry *Entry, read readRange) (*seekTable, error) {
	what := "the seek table of block " + quote(entry.Name)
	if entry.Stored < skippableBytes+seekFooterBytes {
		return nil, corruptf("%s does not fit in %d bytes", what, entry.Stored)
	}
	footer, err := read(entry.end()-seekFooterBytes, entry.end())
	if err != nil {
		return nil, err
	}
	word := binary.LittleEndian
	count, descriptor, magic := int(word.Uint32(footer)), footer[4], word.Uint32(footer[5:])
	if magic != seekMagic || descriptor != seekHasChecksums {
		return nil, corruptf("%s ends with %#x and %#x", what, magic, descriptor)
	}
	tableBytes := count*seekRowBytes + seekFooterBytes
	if count > maxChunks || skippableBytes+tableBytes > entry.Stored {
		return nil, corruptf("%s lists %d chunks in %d bytes", what, count, entry.Stored)
	}
	data, err := read(entry.end()-skippableBytes-tableBytes, entry.end()-seekFooterBytes)
	if err != nil {
		return nil, err
	}
	if word.Uint32(data) != skippableMagic || word.Uint32(data[4:]) != uint32(tableBytes) {
		return nil, corruptf("%s does not begin as a skippable frame", what)
	}
	table := &seekTable{entry, make([]int, count+1), make([]int, count+1), make([]uint32, count)}
	for i := 0; i < count; i++ {
		row := data[skippableBytes+i*seekRowBytes:]
		table.stored[i+1] = table.stored[i] + int(word.Uint32(row))
		table.decoded[i+1] = table.decoded[i] + int(word.Uint32(row[4:]))
		table.checksums[i] = word.Uint32(row[8:])
	}
	if table.stored[count]+skippableBytes+tableBytes != entry.Stored || table.decoded[count] != entry.Size {
		return nil, corruptf("%s sums to %d and %d bytes, which contradicts its entry", what, table.stored[count], table.decoded[count])
	}
	for i := 0; i < count; i++ {
		stored, decoded := table.stored[i+1]-table.stored[i], table.decoded[i+1]-table.decoded[i]
		if stored == 0 || decoded == 0 {
			return nil, corruptf("%s has an empty chunk at %d", what, i)
		}
		if err := checkExpansion(Zstd, stored, decoded, table.nameOf(i)); err != nil {
			return nil, err
		}
	}
	return table, nil
}

func (t *seekTable) nameOf(number int) string {
	return fmt.Sprintf("time chunk %d of block %q", number, t.entry.Name)
}

// chunks returns the first and the last chunk of some decoded bytes, which are not empty.
func (t *seekTable) chunks(start, end int) (int, int) {
	find := func(at int) int { return sort.SearchInts(t.decoded, at+1) - 1 }
	return find(start), find(end - 1)
}

// checkAmount refuses to decode more bytes at once than a small file may promise.
func (t *seekTable) checkAmount(first, last int) error {
	stored, decoded := t.stored[last+1]-t.stored[first], t.decoded[last+1]-t.decoded[first]
	if decoded > maxReadBytes && decoded > readExpansion*stored {
		return errorf(LimitExceeded, "%d bytes of block %q are too many to decode at once", decoded, t.entry.Name).
			withHint("Read it in windows.")
	}
	return nil
}

// read returns the decoded bytes start…end, from the cache or from their chunks.
func (t *seekTable) read(start, end int, read readRange, cache *blockCache) ([]byte, error) {
	if start == end {
		return []byte{}, nil
	}
	first, last := t.chunks(start, end)
	if err := t.checkAmount(first, last); err != nil {
		return nil, err
	}
	var stored []byte
	low := 0
	fetch := func(number int) ([]byte, error) {
		if stored == nil {
			var err error
			low = t.stored[number]
			if stored, err = read(t.entry.Offset+low, t.entry.Offset+t.stored[last+1]); err != nil {
				return nil, err
			}
		}
		return stored[t.stored[number]-low : t.stored[number+1]-low], nil
	}
	// Memory grows with the chunks that have been decoded, so that a forged table costs nothing.
	out := make([]byte, 0, min(end-start, untouchedReadSize))
	for first <= last {
		pieces, err := t.decodeBatch(first, min(last-first+1, runtime.GOMAXPROCS(0)), fetch, cache)
		if err != nil {
			return nil, err
		}
		for _, piece := range pieces {
			base := t.decoded[first]
			out = append(out, piece[max(start-base, 0):min(end-base, len(piece))]...)
			first++
		}
	}
	return out, nil
}

// decodeBatch returns some consecutive chunks, and decodes those that are not cached at the same time.
func (t *seekTable) decodeBatch(first, count int, fetch func(int) ([]byte, error), cache *blockCache) ([][]byte, error) {
	pieces, problems := make([][]byte, count), make([]error, count)
	var running sync.WaitGroup
	for i := range pieces {
		if pieces[i] = cache.get(first + i); pieces[i] != nil {
			continue
		}
		stored, err := fetch(first + i)
		if err != nil {
			problems[i] = err
			break
		}
		decode := func(i int) {
			if pieces[i], problems[i] = t.decode(first+i, stored); problems[i] == nil {
				cache.put(first+i, pieces[i])
			}
		}
		if i == count-1 {
			decode(i) // the last one needs no goroutine
			continue
		}
		running.Add(1)
		go func(i int) {
			defer running.Done()
			decode(i)
		}(i)
	}
	running.Wait()
	for _, problem := range problems {
		if problem != nil {
			return nil, problem
		}
	}
	return pieces, nil
}

// pieces passes the decoded chunks of the whole block, in order.
func (t *seekTable) pieces(read readRange, pass func([]byte) error) error {
	for number := range t.checksums {
		stored, err := read(t.entry.Offset+t.stored[number], t.entry.Offset+t.stored[number+1])
		if err != nil {
			return err
		}
		piece, err := t.decode(number, stored)
		if err != nil {
			return err
		}
		if err := pass(piece); err != nil {
			return err
		}
	}
	return nil
}

func (t *seekTable) decode(number int, stored []byte) ([]byte, error) {
	what := t.nameOf(number)
	piece, err := decompress(Zstd, stored, t.decoded[number+1]-t.decoded[number], what)
	if err == nil && uint32(xxhash.Sum64(piece)) != t.checksums[number] {
		return nil, corruptf("%s fails its checksum", what)
	}
	return piece, err
}

// writeChunks writes the stored bytes of a block with time chunks, from pieces of any length. Memory is one chunk,
// and twelve bytes for each chunk so far.
func writeChunks(out io.Writer, level, chunkBytes int, pieces pieceSource) error {
	encoder, err := newZstdEncoder(level)
	if err != nil {
		return err
	}
	defer encoder.Close()
	word := binary.LittleEndian
	var pending, frame, rows []byte
	flush := func(chunk []byte) error {
		frame = encoder.EncodeAll(chunk, frame[:0])
		rows = word.AppendUint32(rows, uint32(len(frame)))
		rows = word.AppendUint32(rows, uint32(len(chunk)))
		rows = word.AppendUint32(rows, uint32(xxhash.Sum64(chunk)))
		_, err := out.Write(frame)
		return err
	}
	err = pieces(func(piece []byte) error {
		for len(piece) > 0 {
			if len(pending) == 0 && len(piece) >= chunkBytes {
				if err := flush(piece[:chunkBytes]); err != nil {
					return err
				}
				piece = piece[chunkBytes:]
				continue
			}
			count := min(chunkBytes-len(pending), len(piece))
			pending = append(pending, piece[:count]...)
			piece = piece[count:]
			if len(pending) == chunkBytes {
				if err := flush(pending); err != nil {
					return err
				}
				pending = pending[:0]
			}
		}
		return nil
	})
	if err == nil && len(pending) > 0 {
		err = flush(pending)
	}
	if err != nil {
		return err
	}
	table := word.AppendUint32(nil, skippableMagic)
	table = word.AppendUint32(table, uint32(len(rows)+seekFooterBytes))
	table = append(table, rows...)
	table = word.AppendUint32(table, uint32(len(rows)/seekRowBytes))
	table = append(table, seekHasChecksums)
	table = word.AppendUint32(table, seekMagic)
	_, err = out.Write(table)
	return err
}
