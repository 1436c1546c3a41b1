package wshard

// Bounds on foreign input: "Limits" of docs/specs/wshard.md.
const (
	maxEntries      = 1_000_000
	maxNamesBytes   = 100 << 20
	maxNameBytes    = 1<<16 - 1
	maxDecodedBytes = 1 << 30
	maxJSONBytes    = 64 << 20
	maxJSONDepth    = 32
	maxSteps        = 1 << 40
	maxDimensions   = 16
	maxDimension    = 1<<31 - 1
	maxChannels     = 65_536
	maxChunks       = 1_000_000
	maxReadBytes    = 16 << 30
	readExpansion   = 256
	maxRecordBytes  = 1 << 30
	maxFrames       = 4_000_000
	maxExtradata    = 1 << 20
	maxCodecBytes   = 64
	maxChunkSteps   = 1 << 32
	maxLZ4Recorded  = 64 << 20
)
