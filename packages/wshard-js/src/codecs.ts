/**
 * Compression of blocks: none, zstd and lz4, bounded before anything is allocated.
 * Implements "Compression" of the specification.
 */

import { BadInputError, CorruptError, LimitExceededError } from "./errors.js";
import { MAX_DECODED_BYTES } from "./limits.js";
import { compressLz4, decompressLz4 } from "./lz4.js";
import { compressZstd, decompressZstd } from "./zstd.js";

export type Codec = "none" | "zstd" | "lz4";

/** In the order of their numbers in the header. */
export const CODECS: readonly Codec[] = ["none", "zstd", "lz4"];

/** A codec, or a codec and its level. zstd has levels −50 to 22; lz4 is written at its fast level only. */
export type CompressionName = Codec | readonly [codec: Codec, level: number | null];

export interface Compression {
  readonly codec: Codec;
  readonly level: number | null;
}

export const PLAIN: Compression = { codec: "none", level: null };

const ZSTD_BLOCK_BYTES = 128 * 1024;
const LZ4_MOST_PER_BYTE = 255;
const ZSTD_DEFAULT_LEVEL = 3;
const LEVELS: Readonly<Record<Codec, readonly [number, number]>> = { none: [0, 0], zstd: [-50, 22], lz4: [0, 0] };

export function parseCompression(value: CompressionName): Compression {
  const [codec, level] = typeof value === "string" ? [value, null] : value;
  if (!CODECS.includes(codec)) {
    throw new BadInputError(`the compression '${String(codec)}' is unknown`, { hint: "Use none, zstd or lz4." });
  }
  const [low, high] = LEVELS[codec];
  if (level !== null && !(Number.isInteger(level) && level >= low && level <= high)) {
    throw new BadInputError(`the level ${level} is not one of ${codec}: ${low} to ${high}`);
  }
  return { codec, level };
}

export async function compress(data: Uint8Array, how: Compression): Promise<Uint8Array> {
  switch (how.codec) {
    case "zstd":
      return compressZstd(data, how.level ?? ZSTD_DEFAULT_LEVEL);
    case "lz4":
      return compressLz4(data);
    case "none":
      return data;
  }
}

/** Rejects a decoded size that no valid stream can reach, before it is allocated. */
export function checkExpansion(codec: Codec, storedBytes: number, decodedBytes: number, what: string): void {
  if (decodedBytes > MAX_DECODED_BYTES) {
    throw new LimitExceededError(`${what} has ${decodedBytes} bytes decoded; the most is ${MAX_DECODED_BYTES}`, {
      hint: "Store it uncompressed or in time chunks, or split the episode into chunks.",
    });
  }
  // A zstd block yields at most 128 KiB from at least four bytes; a byte of lz4 yields at most 255.
  const most =
    codec === "zstd" ? ZSTD_BLOCK_BYTES * (Math.floor(storedBytes / 4) + 1) : LZ4_MOST_PER_BYTE * storedBytes;
  if (decodedBytes > most) {
    throw new CorruptError(`${what}: ${storedBytes} bytes cannot hold the promised ${decodedBytes}`);
  }
}

/** Returns exactly `decodedBytes` bytes, or throws. */
export async function decompress(
  data: Uint8Array,
  codec: "zstd" | "lz4",
  decodedBytes: number,
  what: string,
): Promise<Uint8Array> {
  checkExpansion(codec, data.length, decodedBytes, what);
  return codec === "zstd" ? decompressZstd(data, decodedBytes, what) : decompressLz4(data, decodedBytes, what);
}
