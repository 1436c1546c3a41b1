package wshard

import (
	"encoding/binary"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// One zstd frame. Its header and its block headers are parsed here, so that a frame with a false size, a dictionary or
// trailing bytes never reaches the decoder, and the decoder never allocates more than the frame can hold.

const (
	zstdMagic           = 0xFD2FB528
	zstdMaxWindow       = 1 << 27
	zstdHeaderBytes     = 6 // the smallest frame header that can be followed by a block
	zstdRaw, zstdRLE    = 0, 1
	zstdReserved        = 3
	zstdRebuiltFlags    = 3<<6 | 1<<5 // content size of eight bytes, single segment
	zstdHasChecksum     = 1 << 2
	zstdReservedBit     = 1 << 3
	zstdIsSingleSegment = 1 << 5
)

var zstdDecoder = onceValue(func() *zstd.Decoder {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(maxDecodedBytes), zstd.WithDecoderMaxWindow(maxDecodedBytes))
	if err != nil {
		panic(err) // the options are constants
	}
	return decoder
})

func decompressZstd(data []byte, size int, what string) ([]byte, error) {
	frame, err := parseFrame(data, size, what)
	if err != nil {
		return nil, err
	}
	if size == 0 {
		if !frame.isEmpty {
			return nil, corruptf("%s is not one zstd frame: it is not empty", what)
		}
		return []byte{}, nil
	}
	if size > frame.mostBytes {
		return nil, corruptf("%s is not one zstd frame: its blocks cannot hold %d bytes", what, size)
	}
	out, err := zstdDecoder().DecodeAll(data, make([]byte, 0, size))
	if err != nil {
		// The decoder refuses some windows that the reference library accepts.
		out, err = zstdDecoder().DecodeAll(frame.rebuild(data, size), make([]byte, 0, size))
	}
	if err != nil {
		return nil, corruptf("%s is not one zstd frame: %v", what, err)
	}
	if len(out) != size {
		return nil, corruptf("%s decodes to %d bytes instead of %d", what, len(out), size)
	}
	return out, nil
}

// zstdFrame is a frame that fills its bytes exactly.
type zstdFrame struct {
	blocksAt  int
	flags     byte
	isEmpty   bool
	mostBytes int // upper bound of the decoded size
}

func parseFrame(data []byte, size int, what string) (zstdFrame, error) {
	refuse := func(why string) (zstdFrame, error) {
		return zstdFrame{}, corruptf("%s is not one zstd frame: %s", what, why)
	}
	if len(data) < zstdHeaderBytes || binary.LittleEndian.Uint32(data) != zstdMagic {
		return refuse("it does not begin as one")
	}
	flags := data[4]
	isSingle := flags&zstdIsSingleSegment != 0
	dictionaryAt, sizeBytes := 6, [...]int{0, 2, 4, 8}[flags>>6]
	if isSingle {
		dictionaryAt = 5
		if sizeBytes == 0 {
			sizeBytes = 1
		}
	}
	sizeAt := dictionaryAt + [...]int{0, 1, 2, 4}[flags&3]
	at := sizeAt + sizeBytes
	if flags&zstdReservedBit != 0 || at > len(data) {
		return refuse("its header is corrupt")
	}
	if sizeBytes > 0 {
		content := littleEndian(data[sizeAt:at])
		if sizeBytes == 2 {
			content += 256
		}
		if content != uint64(size) {
			return zstdFrame{}, corruptf("%s: its zstd frame promises %d bytes, its entry %d", what, content, size)
		}
	} else if window := windowBytes(data[5]); window > zstdMaxWindow {
		return refuse("its window is too large")
	}
	if littleEndian(data[dictionaryAt:sizeAt]) != 0 {
		return zstdFrame{}, unsupportedf("%s needs a zstd dictionary, and episode files have none", what)
	}
	frame := zstdFrame{blocksAt: at, flags: flags, isEmpty: true}
	for isLast := false; !isLast; {
		if at+3 > len(data) {
			return refuse("it is cut short")
		}
		head := int(littleEndian(data[at : at+3]))
		kind, count := head>>1&3, head>>3
		isLast = head&1 == 1
		at += 3
		switch kind {
		case zstdRaw:
			frame.mostBytes += count
			at += count
		case zstdRLE:
			frame.mostBytes += count
			at++
		case zstdReserved:
			return refuse("a block has an unknown type")
		default:
			frame.mostBytes += zstdBlockBytes
			if at+count <= len(data) && hasReservedBits(data[at:at+count]) {
				return refuse("a block has reserved bits")
			}
			at += count
		}
		frame.isEmpty = frame.isEmpty && frame.mostBytes == 0
	}
	if flags&zstdHasChecksum != 0 {
		at += 4
	}
	if at != len(data) {
		return refuse("it is cut short, or bytes follow it")
	}
	return frame, nil
}

// hasReservedBits reports whether the reserved bits of the sequences section of a compressed block are set. The decoder
// ignores them; the reference library refuses them.
func hasReservedBits(block []byte) bool {
	if len(block) < 5 {
		return false // no sequences with modes fit, and the decoder refuses what is cut short
	}
	at, kind, format := 0, block[0]&3, block[0]>>2&3
	if kind < 2 { // raw or repeated literals
		width := [...]int{1, 2, 1, 3}[format]
		shift := 4
		if width == 1 {
			shift = 3
		}
		if at = width; kind == 0 {
			at += int(littleEndian(block[:width]) >> shift)
		} else {
			at++
		}
	} else {
		width, bits := [...]int{3, 3, 4, 5}[format], [...]int{10, 10, 14, 18}[format]
		at = width + int(littleEndian(block[:width])>>(4+bits)&(1<<bits-1))
	}
	if at >= len(block) || block[at] == 0 {
		return false
	}
	switch {
	case block[at] < 128:
		at++
	case block[at] < 255:
		at += 2
	default:
		at += 3
	}
	return at < len(block) && block[at]&3 != 0
}

// rebuild returns the same blocks behind a header with the content size and without a window of its own.
func (f zstdFrame) rebuild(data []byte, size int) []byte {
	out := make([]byte, 0, 13+len(data)-f.blocksAt)
	out = binary.LittleEndian.AppendUint32(out, zstdMagic)
	out = append(out, zstdRebuiltFlags|f.flags&zstdHasChecksum)
	out = binary.LittleEndian.AppendUint64(out, uint64(size))
	return append(out, data[f.blocksAt:]...)
}

func windowBytes(descriptor byte) uint64 {
	base := uint64(1) << (10 + descriptor>>3)
	return base + base/8*uint64(descriptor&7)
}

// littleEndian returns an unsigned number of up to eight bytes.
func littleEndian(data []byte) uint64 {
	var value uint64
	for i, part := range data {
		value |= uint64(part) << (8 * i)
	}
	return value
}

// newZstdEncoder returns an encoder of single frames: content size, no checksum.
func newZstdEncoder(level int) (*zstd.Encoder, error) {
	if level == 0 {
		level = zstdDefaultLevel
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)),
		zstd.WithEncoderCRC(false), zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true))
	if err != nil {
		return nil, badInputf("the zstd level %d is not possible: %v", level, err)
	}
	return encoder, nil
}

// compressZstd writes one frame of a known size, from pieces of any length.
func compressZstd(out io.Writer, level, size int, pieces pieceSource) error {
	encoder, err := newZstdEncoder(level)
	if err != nil {
		return err
	}
	encoder.ResetContentSize(out, int64(size))
	err = pieces(func(piece []byte) error {
		_, err := encoder.Write(piece)
		return err
	})
	if closed := encoder.Close(); err == nil {
		err = closed
	}
	return err
}

// onceValue returns a function that makes its value on the first call.
func onceValue[T any](make func() T) func() T {
	var once sync.Once
	var value T
	return func() T {
		once.Do(func() { value = make() })
		return value
	}
}
