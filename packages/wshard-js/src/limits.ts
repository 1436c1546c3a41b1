/** Bounds on foreign input, each checked before memory is allocated. Implements "Limits" of the specification. */

const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;

export const MAX_ENTRIES = 1_000_000;
export const MAX_NAMES_BYTES = 100 * MIB;
export const MAX_NAME_BYTES = 65_535;
export const MAX_GAP_BYTES = 4096;
export const MAX_DECODED_BYTES = GIB;
export const MAX_CHUNKS = 1_000_000;
/** Bound on the compressed blocks that are loaded at once, unless they store at least a 256th of it. */
export const MAX_READ_BYTES = 16 * GIB;
export const READ_EXPANSION = 256;
export const MAX_JSON_BYTES = 64 * MIB;
export const MAX_JSON_DEPTH = 32;
export const MAX_STEPS = 2 ** 40;
export const MAX_CHUNK_STEPS = 2 ** 32;
export const MAX_DIMENSIONS = 16;
export const MAX_DIMENSION = 2 ** 31 - 1;
export const MAX_CHANNELS = 65_536;
export const MAX_RECORD_BYTES = GIB;
export const MAX_FRAMES = 4_000_000;
export const MAX_EXTRADATA_BYTES = MIB;
export const MAX_FRAME_BYTES = 256 * MIB;

/** Smaller blocks are never compressed. */
export const MIN_COMPRESS_BYTES = 64;
/** The bounds on a zstd block and on an lz4 block of a recording; larger ones stay uncompressed. */
export const MAX_RECORDED_ZSTD_BYTES = 256 * MIB;
export const MAX_RECORDED_LZ4_BYTES = 64 * MIB;
/** The cached chunks of one block by default, and of all blocks together. */
export const CACHE_BYTES = 8 * MIB;
export const MAX_CACHE_BYTES = 2 * GIB;
/** Smaller ranges of a local file are read at once, because a thread would take longer than the read. */
export const READ_NOW_BYTES = 256 * KIB;
/** A read of a local file takes as long as copying about this many bytes. */
export const READ_COST_BYTES = 32 * KIB;
/** The memory for the buffered steps of a recording. */
export const BUFFER_BYTES = 16 * MIB;
/** The first read of a file, which usually holds the header, the index and the metadata. */
export const HEAD_GUESS_BYTES = 64 * KIB;
/** The size of the pieces in which long blocks are hashed. */
export const PIECE_BYTES = 4 * MIB;
/** The number of blocks that are fetched at the same time. */
export const MAX_PARALLEL_READS = 6;
/** The capacity of the zstd decoder, input and output together. */
export const MAX_ZSTD_HEAP_BYTES = GIB + 768 * MIB;
