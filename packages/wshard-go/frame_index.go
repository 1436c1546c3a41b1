package wshard

import (
	"encoding/binary"
	"sort"
)

// The index of an encoded block: the offset, size and time of each frame, so that single frames can be read. This
// library returns the bytes of frames and does not decode them. Implements "Frame index" of docs/specs/wshard.md.

const (
	frameMagic       = "WSFI"
	frameVersion     = 1
	frameHeaderBytes = 32
	frameEntryBytes  = 32
	maxFrameBytes    = 256 << 20

	frameKey, frameHidden = 1, 2
)

// FrameEntry is one entry of a frame index, in decoding order.
type FrameEntry struct {
	Offset   int
	Size     int
	Checksum uint32 // CRC-32C of the bytes
	TimeNS   int64
	IsKey    bool
	IsHidden bool // decoded but not shown
}

// FrameIndex lists the frames of a block. Entries are in decoding order; frames are numbered from 0 in the order they
// are shown. Codec is FFmpeg's name of the codec, or jpeg or png; Extradata configures the decoder.
type FrameIndex struct {
	Codec     string
	Extradata []byte
	Entries   []FrameEntry

	shown  []int // the entry of each frame
	starts []int // the key entry at which decoding of each entry begins, or -1
}

// FrameIndex reads the index of an encoded block; an error of the kind NotFound if it has none.
func (f *File) FrameIndex(block string) (*FrameIndex, error) {
	encoded, err := f.Block(block)
	if err != nil {
		return nil, err
	}
	reader, err := f.Block("frames/" + block)
	if err != nil {
		return nil, err
	}
	data, err := reader.raw()
	if err != nil {
		return nil, err
	}
	return parseFrames(data, encoded.entry.Size)
}

// Len returns the number of frames that are shown.
func (x *FrameIndex) Len() int { return len(x.shown) }

// Entry returns the entry number of a frame.
func (x *FrameIndex) Entry(frame int) (int, error) {
	if frame < 0 || frame >= len(x.shown) {
		return 0, badInputf("there is no frame %d; the block has %d, numbered from 0", frame, len(x.shown))
	}
	return x.shown[frame], nil
}

// TimesNS returns the times at which the frames are shown, ascending.
func (x *FrameIndex) TimesNS() []int64 {
	out := make([]int64, len(x.shown))
	for i, entry := range x.shown {
		out[i] = x.Entries[entry].TimeNS
	}
	return out
}

// EntrySpan returns the entries, in decoding order, from which the frames first…last (both included) are decoded.
func (x *FrameIndex) EntrySpan(first, last int) (int, int, error) {
	if first < 0 || first > last || last >= len(x.shown) {
		return 0, 0, badInputf("the frames %d to %d are not within the %d of the block", first, last, len(x.shown))
	}
	low, high := len(x.Entries), 0
	for _, entry := range x.shown[first : last+1] {
		low, high = min(low, x.starts[entry]), max(high, entry+1)
	}
	return low, high, nil
}

// Groups returns the GOP of each frame: the frames whose decoding begins at the same entry. Counted from 0.
func (x *FrameIndex) Groups() []int {
	starts := make([]int, 0, len(x.shown))
	for _, entry := range x.shown {
		starts = append(starts, x.starts[entry])
	}
	sorted := append([]int{}, starts...)
	sort.Ints(sorted)
	numbers := map[int]int{}
	for _, start := range sorted {
		if _, ok := numbers[start]; !ok {
			numbers[start] = len(numbers)
		}
	}
	for i, start := range starts {
		starts[i] = numbers[start]
	}
	return starts
}

// FrameBytes reads the bytes of one entry of an encoded block, and verifies their checksum.
func (b *BlockReader) FrameBytes(entry FrameEntry) ([]byte, error) {
	if entry.Size > maxFrameBytes {
		return nil, errorf(LimitExceeded, "a frame of block %q has %d bytes; the most is %d", b.entry.Name, entry.Size, maxFrameBytes)
	}
	if entry.Offset < 0 || entry.Size < 0 || entry.Offset > b.entry.Size || entry.Size > b.entry.Size-entry.Offset {
		return nil, corruptf("a frame at %d+%d is outside the %d bytes of block %q", entry.Offset, entry.Size, b.entry.Size, b.entry.Name)
	}
	data, err := b.slice(entry.Offset, entry.Offset+entry.Size, b.cache)
	if err != nil {
		return nil, err
	}
	if checksum(0, data) != entry.Checksum {
		return nil, corruptf("the frame at byte %d of block %q fails its checksum", entry.Offset, b.entry.Name)
	}
	return data, nil
}

// Encode returns the bytes of the index block of an encoded block of size bytes, and checks them by the rules of the
// reader.
func (x *FrameIndex) Encode(size int) ([]byte, error) {
	word := binary.LittleEndian
	out := append([]byte{}, frameMagic...)
	out = word.AppendUint16(out, frameVersion)
	out = word.AppendUint16(out, frameEntryBytes)
	out = word.AppendUint64(out, uint64(len(x.Entries)))
	out = word.AppendUint32(out, uint32(len(x.Codec)))
	out = word.AppendUint32(out, uint32(len(x.Extradata)))
	out = append(out, make([]byte, 8)...)
	out = append(append(out, x.Codec...), x.Extradata...)
	for _, entry := range x.Entries {
		flags := uint32(0)
		if entry.IsKey {
			flags |= frameKey
		}
		if entry.IsHidden {
			flags |= frameHidden
		}
		out = word.AppendUint64(out, uint64(entry.Offset))
		out = word.AppendUint32(out, uint32(entry.Size))
		out = word.AppendUint32(out, entry.Checksum)
		out = word.AppendUint64(out, uint64(entry.TimeNS))
		out = word.AppendUint32(out, flags)
		out = word.AppendUint32(out, 0)
	}
	_, err := parseFrames(out, size)
	return out, asBadInput(err, "the frame index cannot be written")
}

// parseFrames parses and checks the index of a block of size bytes.
func parseFrames(data []byte, size int) (*FrameIndex, error) {
	if len(data) < frameHeaderBytes {
		return nil, corruptf("the frame index has %d bytes; its header alone takes %d", len(data), frameHeaderBytes)
	}
	word := binary.LittleEndian
	if string(data[:4]) != frameMagic {
		return nil, corruptf("the frame index begins with %q", data[:4])
	}
	version, width := word.Uint16(data[4:]), word.Uint16(data[6:])
	if version != frameVersion || width != frameEntryBytes || word.Uint64(data[24:]) != 0 {
		return nil, unsupportedf("the frame index has the version %d, with entries of %d bytes", version, width)
	}
	count, codecBytes, extraBytes := word.Uint64(data[8:]), int(word.Uint32(data[16:])), int(word.Uint32(data[20:]))
	if count > maxFrames || extraBytes > maxExtradata || codecBytes == 0 || codecBytes > maxCodecBytes {
		return nil, errorf(LimitExceeded, "the frame index has %d frames, %d bytes of extradata, %d of codec", count, extraBytes, codecBytes)
	}
	body := frameHeaderBytes + codecBytes
	if len(data) != body+extraBytes+int(count)*frameEntryBytes {
		return nil, corruptf("the frame index has %d bytes, which do not fit its %d frames", len(data), count)
	}
	for _, letter := range data[frameHeaderBytes:body] {
		if letter > 127 {
			return nil, corruptf("the codec of the frame index is not ASCII")
		}
	}
	index := &FrameIndex{Codec: string(data[frameHeaderBytes:body]), Extradata: append([]byte{}, data[body:body+extraBytes]...)}
	return index, index.parseEntries(data[body+extraBytes:], size)
}

func (x *FrameIndex) parseEntries(data []byte, size int) error {
	word := binary.LittleEndian
	x.Entries = make([]FrameEntry, len(data)/frameEntryBytes)
	hasUnknownFlags := false
	for i := range x.Entries {
		row := data[i*frameEntryBytes:]
		offset, count, flags := word.Uint64(row), word.Uint32(row[8:]), word.Uint32(row[24:])
		if offset > uint64(size) || uint64(count) > uint64(size)-offset {
			return corruptf("a frame at %d+%d is outside the %d bytes of its block", offset, count, size)
		}
		hasUnknownFlags = hasUnknownFlags || flags&^(frameKey|frameHidden) != 0 || word.Uint32(row[28:]) != 0
		x.Entries[i] = FrameEntry{int(offset), int(count), word.Uint32(row[12:]), int64(word.Uint64(row[16:])), flags&frameKey != 0, flags&frameHidden != 0}
	}
	if hasUnknownFlags {
		return unsupportedf("the frame index has unknown flags")
	}
	return x.order()
}

// order numbers the frames and finds where their decoding begins.
func (x *FrameIndex) order() error {
	for number, entry := range x.Entries {
		if !entry.IsHidden {
			x.shown = append(x.shown, number)
		}
	}
	timeOf := func(frame int) int64 { return x.Entries[x.shown[frame]].TimeNS }
	sort.SliceStable(x.shown, func(i, j int) bool { return timeOf(i) < timeOf(j) })
	for frame := 1; frame < len(x.shown); frame++ {
		if timeOf(frame) == timeOf(frame-1) {
			return corruptf("two frames are shown at the same time")
		}
	}
	x.findStarts()
	isImage := x.Codec == "jpeg" || x.Codec == "png"
	for _, entry := range x.shown {
		if x.starts[entry] < 0 {
			return corruptf("the frame index has a frame without a preceding key frame")
		}
	}
	for _, entry := range x.shown {
		if isImage && !x.Entries[entry].IsKey {
			return corruptf("the frame index has an image that is not a key frame")
		}
	}
	return nil
}

func (x *FrameIndex) findStarts() {
	x.starts = make([]int, len(x.Entries))
	// A key frame that is shown after a later key frame is dropped, so the times of the remaining ones ascend.
	var keys []int
	for number, entry := range x.Entries {
		if entry.IsKey {
			for len(keys) > 0 && x.Entries[keys[len(keys)-1]].TimeNS >= entry.TimeNS {
				keys = keys[:len(keys)-1]
			}
			keys = append(keys, number)
		}
		later := sort.Search(len(keys), func(i int) bool { return x.Entries[keys[i]].TimeNS > entry.TimeNS })
		x.starts[number] = -1
		if later > 0 {
			x.starts[number] = keys[later-1]
		}
	}
}
