package wshard

import "github.com/pierrec/lz4"

// One raw lz4 block. The sequences are checked before they are decoded, by the rules of the reference library: the
// last five bytes are literals, no match begins in the last twelve, and a match has an offset of at least 1.

const (
	lz4MinMatch     = 4
	lz4LastLiterals = 5
	lz4NoMatchAtEnd = 12
	lz4HCDepth      = 1 << 9
)

func decompressLZ4(data []byte, size int, what string) ([]byte, error) {
	if why := findLZ4Problem(data, size); why != "" {
		return nil, corruptf("%s is not a raw lz4 block: %s", what, why)
	}
	out := make([]byte, size)
	if size == 0 {
		return out, nil // the library takes an empty destination for one that is too short
	}
	count, err := lz4.UncompressBlock(data, out)
	if err != nil || count != size {
		return nil, corruptf("%s is not a raw lz4 block: %d bytes instead of %d: %v", what, count, size, err)
	}
	return out, nil
}

// findLZ4Problem returns the reason why a block does not decode to exactly size bytes, or nothing.
func findLZ4Problem(data []byte, size int) string {
	from, at := 0, 0
	readLength := func(nibble int) (int, bool) {
		if nibble < 15 {
			return nibble, true
		}
		for length := nibble; from < len(data); {
			more := int(data[from])
			from++
			length += more
			if more < 255 {
				return length, true
			}
		}
		return 0, false
	}
	for from < len(data) {
		token := int(data[from])
		from++
		literals, ok := readLength(token >> 4)
		if !ok || literals > len(data)-from || literals > size-at {
			return "literals that do not fit"
		}
		from += literals
		at += literals
		if from == len(data) {
			if at != size {
				return "another number of bytes"
			}
			return ""
		}
		if from+2 > len(data) {
			return "it ends inside a match"
		}
		distance := int(data[from]) | int(data[from+1])<<8
		if distance == 0 || distance > at {
			return "a match that is not within the block: a match 0 bytes back, or before its beginning"
		}
		from += 2
		length, ok := readLength(token & 15)
		if !ok || at > size-lz4NoMatchAtEnd || length+lz4MinMatch > size-lz4LastLiterals-at {
			return "a match that does not fit"
		}
		at += length + lz4MinMatch
	}
	return "it ends without literals"
}

func compressLZ4(data []byte, level int) ([]byte, error) {
	out := make([]byte, lz4.CompressBlockBound(len(data)))
	var count int
	var err error
	if level == 0 {
		count, err = lz4.CompressBlock(data, out, nil)
	} else {
		count, err = lz4.CompressBlockHC(data, out, lz4HCDepth)
	}
	if err != nil {
		return nil, badInputf("%d bytes could not be compressed: %v", len(data), err)
	}
	return out[:count], nil
}
