package wshard

import (
	"hash/crc32"
	"strings"
)

// Codec is the compression of a block, numbered like the default in the header.
type Codec uint8

// The codecs of the format: zstd (one frame, or several for time chunks) and lz4 (one raw block).
const (
	None Codec = iota
	Zstd
	LZ4
)

func (c Codec) String() string {
	return [...]string{"none", "zstd", "lz4"}[c%3]
}

// Compression is a codec and its level; level 0 is the default of the codec. Levels are those of the reference
// libraries, and select the nearest setting of this one.
type Compression struct {
	Codec Codec
	Level int
}

const (
	zstdBlockBytes   = 128 << 10
	lz4Expansion     = 255
	minCompressed    = 64 // smaller blocks stay uncompressed, because compression would not shrink them
	zstdDefaultLevel = 3
)

// ParseCompression returns the compression of this name: none, zstd or lz4.
func ParseCompression(name string, level int) (Compression, error) {
	for codec := None; codec <= LZ4; codec++ {
		if codec.String() == strings.ToLower(name) {
			compression := Compression{codec, level}
			return compression, compression.check()
		}
	}
	return Compression{}, errorf(BadInput, "the compression %q is unknown", name).withHint("Use none, zstd or lz4.")
}

func (c Compression) check() error {
	if c.Codec > LZ4 {
		return badInputf("the codec %d does not exist", c.Codec)
	}
	low, high := [...]int{0, -50, 0}[c.Codec], [...]int{0, 22, 16}[c.Codec]
	if c.Level < low || c.Level > high {
		return badInputf("the level %d is not one of %s: %d to %d", c.Level, c.Codec, low, high)
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the CRC-32C of the data, continuing from before.
func checksum(before uint32, data []byte) uint32 { return crc32.Update(before, castagnoli, data) }

// checkExpansion refuses a decoded size that no valid stream can reach, before it is allocated.
func checkExpansion(codec Codec, stored, decoded int, what string) error {
	if decoded > maxDecodedBytes {
		return errorf(LimitExceeded, "%s has %d bytes decoded; the most is %d", what, decoded, maxDecodedBytes).
			withHint("Store it uncompressed or in time chunks, or split the episode into chunks.")
	}
	most := lz4Expansion * stored
	if codec == Zstd {
		// A zstd block yields at most 128 KiB from at least four bytes.
		most = zstdBlockBytes * (stored/4 + 1)
	}
	if decoded > most {
		return corruptf("%s: %d bytes cannot hold the promised %d", what, stored, decoded)
	}
	return nil
}

// decompress returns exactly size bytes, or an error of the kind Corrupt.
func decompress(codec Codec, stored []byte, size int, what string) ([]byte, error) {
	if err := checkExpansion(codec, len(stored), size, what); err != nil {
		return nil, err
	}
	if codec == Zstd {
		return decompressZstd(stored, size, what)
	}
	return decompressLZ4(stored, size, what)
}
