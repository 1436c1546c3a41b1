package wshard

import (
	"sync"
	"sync/atomic"
)

// Reading of one block: whole, in windows, or in pieces. Implements "Reading" of docs/specs/wshard.md.

// RowReader reads the rows of one block, of one file or of several joined ones.
type RowReader interface {
	Name() string
	Type() (BlockType, error)
	Read() (*Array, error)
	Window(start, stop int) (*Array, error)
}

// BlockReader reads one block of an open file. It is safe for several goroutines.
type BlockReader struct {
	file      *File
	entry     *Entry
	cache     *blockCache
	isChecked atomic.Bool

	typeMu    sync.Mutex
	blockType *BlockType
	stepBytes int

	// Finding a type may read the table of the same block, if that is metadata. So each has its own lock.
	tableMu sync.Mutex
	table   *seekTable
}

// Name returns the name of the block.
func (b *BlockReader) Name() string { return b.entry.Name }

// Entry returns the index entry of the block.
func (b *BlockReader) Entry() Entry { return *b.entry }

// Type returns the element type, step shape and number of rows. It reads the metadata blocks on first use.
func (b *BlockReader) Type() (BlockType, error) {
	found, _, err := b.typeAndStep()
	if err != nil {
		return BlockType{}, err
	}
	return *found, nil
}

func (b *BlockReader) typeAndStep() (*BlockType, int, error) {
	b.typeMu.Lock()
	defer b.typeMu.Unlock()
	if b.blockType == nil {
		info, err := b.file.Info()
		if err != nil {
			return nil, 0, err
		}
		found, err := findBlockType(b.entry.Name, b.entry.Size, info)
		if err != nil {
			return nil, 0, err
		}
		b.blockType, b.stepBytes = &found, found.stepBytes()
	}
	return b.blockType, b.stepBytes, nil
}

// Read reads and verifies the whole block, in its declared type and shape; as uint8 without a declaration.
func (b *BlockReader) Read() (*Array, error) {
	found, err := b.Type()
	if err != nil {
		return nil, err
	}
	data, err := b.raw()
	if err != nil {
		return nil, err
	}
	return rowsOf(data, found.DType, found.Rows, found.Shape)
}

// Window returns the rows from start up to, not including, stop.
//
// Uncompressed: it reads only these bytes, which no checksum covers. With time chunks: it decodes and verifies only
// their chunks, and caches them. Otherwise it decodes and verifies the whole block, and caches it. Rows may be views of
// the file or of the cache, so change only a Clone.
func (b *BlockReader) Window(start, stop int) (*Array, error) {
	found, step, err := b.typeAndStep()
	if err != nil {
		return nil, err
	}
	if start < 0 || start > stop || stop > found.Rows {
		return nil, badInputf("rows %d…%d are not within the %d of %q", start, stop, found.Rows, b.entry.Name)
	}
	if rows := b.cache.all(); rows != nil {
		shape := append([]int{stop - start}, found.Shape...)
		return &Array{found.DType, shape, rows.Data[start*step : stop*step : stop*step]}, nil
	}
	data, err := b.slice(multiply(start, step), multiply(stop, step), b.cache)
	if err != nil {
		return nil, err
	}
	b.promote(len(data))
	return rowsOf(data, found.DType, stop-start, found.Shape)
}

// promote caches the whole block once windows have read as many bytes as it has.
func (b *BlockReader) promote(readBytes int) {
	source := b.file.opened()
	if source == nil || !source.isMapped() || !b.entry.IsChunked || !b.cache.shouldLoadAll(readBytes, b.entry.Size) {
		return
	}
	// Damage in other chunks is reported when they are read.
	data, err := b.slice(0, b.entry.Size, b.cache)
	if err != nil {
		return
	}
	if rows, err := rowsOf(data, b.blockType.DType, b.blockType.Rows, b.blockType.Shape); err == nil {
		b.cache.putRows(rows)
	}
}

// Raw returns the decoded and verified bytes. They may be a view of a mapped file; see Open.
func (b *BlockReader) Raw() ([]byte, error) { return b.raw() }

// raw verifies the checksum of an uncompressed block once.
func (b *BlockReader) raw() ([]byte, error) {
	data, err := b.slice(0, b.entry.Size, nil)
	if err != nil {
		return nil, err
	}
	if b.entry.Codec != None || !b.isChecked.Load() {
		if err := b.check(checksum(0, data)); err != nil {
			return nil, err
		}
		b.isChecked.Store(true)
	}
	return data, nil
}

// owned returns decoded and verified bytes that are no view of a mapped file.
func (b *BlockReader) owned() ([]byte, error) {
	data, err := b.raw()
	if err == nil && b.entry.Codec == None {
		data = append(make([]byte, 0, len(data)), data...)
	}
	return data, err
}

// pieces passes the decoded bytes, and verifies the checksum at the end. A single frame or lz4 block is one piece.
func (b *BlockReader) pieces(pass func([]byte) error) error {
	sum := uint32(0)
	meter := func(piece []byte) error {
		sum = checksum(sum, piece)
		return pass(piece)
	}
	if b.entry.IsChunked {
		table, err := b.seekTable()
		if err == nil {
			err = table.pieces(b.file.read, meter)
		}
		if err != nil {
			return err
		}
		return b.check(sum)
	}
	step := b.entry.Size
	if b.entry.Codec == None {
		step = pieceBytes
	}
	for start := 0; start < b.entry.Size; start += step {
		piece, err := b.slice(start, min(start+step, b.entry.Size), nil)
		if err == nil {
			err = meter(piece)
		}
		if err != nil {
			return err
		}
	}
	if b.entry.Codec != None && b.entry.Size == 0 {
		if _, err := b.slice(0, 0, nil); err != nil {
			return err
		}
	}
	return b.check(sum)
}

func (b *BlockReader) slice(low, high int, cache *blockCache) ([]byte, error) {
	entry := b.entry
	if entry.Codec == None {
		return b.file.read(entry.Offset+low, entry.Offset+high)
	}
	if entry.IsChunked {
		table, err := b.seekTable()
		if err != nil {
			return nil, err
		}
		return table.read(low, high, b.file.read, cache)
	}
	data := cache.get(0)
	if data == nil {
		stored, err := b.file.read(entry.Offset, entry.end())
		if err != nil {
			return nil, err
		}
		if data, err = decompress(entry.Codec, stored, entry.Size, "block "+quote(entry.Name)); err != nil {
			return nil, err
		}
		if cache != nil || low > 0 || high != entry.Size {
			if err := b.check(checksum(0, data)); err != nil {
				return nil, err
			}
		}
		cache.put(0, data)
	}
	return data[low:high:high], nil
}

func (b *BlockReader) seekTable() (*seekTable, error) {
	b.tableMu.Lock()
	defer b.tableMu.Unlock()
	if b.table == nil {
		table, err := readSeekTable(b.entry, b.file.read)
		if err != nil {
			return nil, err
		}
		b.table = table
	}
	return b.table, nil
}

// check compares a checksum. A zero means "absent" only if the header does not promise checksums.
func (b *BlockReader) check(found uint32) error {
	if (b.entry.Checksum != 0 || b.file.header.hasChecksums()) && found != b.entry.Checksum {
		return corruptf("block %q has the checksum %08x instead of %08x", b.entry.Name, found, b.entry.Checksum)
	}
	return nil
}
