/** Bounds on everything that comes from outside, each checked before memory is taken. "Limits" of the specification. */

const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;

export const MAX_ENTRIES = 1_000_000;
export const MAX_NAMES_BYTES = 100 * MIB;
export const MAX_NAME_BYTES = 65_535;
export const MAX_GAP_BYTES = 4096;
export const MAX_DECODED_BYTES = GIB;
export const MAX_CHUNKS = 1_000_000;
/** What compressed blocks may take when they are loaded at once, unless they stored at least a 256th of it. */
export const MAX_READ_BYTES = 16 * GIB;
export const READ_EXPANSION = 256;
export const MAX_JSON_BYTES = 64 * MIB;
export const MAX_JSON_DEPTH = 32;
export const MAX_STEPS = 2 ** 40;
export const MAX_DIMENSIONS = 16;
export const MAX_DIMENSION = 2 ** 31 - 1;
export const MAX_CHANNELS = 65_536;
export const MAX_RECORD_BYTES = GIB;

/** Blocks with fewer bytes are never compressed. */
export const MIN_COMPRESS_BYTES = 64;
/** What is fetched of a file at once: header, index and metadata of a usual one. */
export const HEAD_GUESS_BYTES = 64 * KIB;
/** The piece in which long blocks are hashed. */
export const PIECE_BYTES = 4 * MIB;
/** How many blocks are fetched at the same time. */
export const MAX_PARALLEL_READS = 6;
/** What the memory of the zstd decoder can hold, input and output together. */
export const MAX_ZSTD_HEAP_BYTES = GIB + 768 * MIB;
