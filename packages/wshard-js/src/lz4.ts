/**
 * LZ4 in its raw block form, without a size. Small enough to be implemented here.
 *
 * The decoder enforces the end-of-block rules of the reference library: the last five bytes are literals, and no match
 * begins in the last twelve.
 */

import { CorruptError } from "./errors.js";

const MIN_MATCH = 4;
const LAST_LITERALS = 5;
const NO_MATCH_AT_END = 12;
const MAX_DISTANCE = 65_535;
const HASH_BITS = 16;
const SKIP_SHIFT = 6;

/** Returns exactly `size` bytes, or throws `CorruptError`. */
export function decompressLz4(source: Uint8Array, size: number, what: string): Uint8Array {
  const out = new Uint8Array(size);
  let from = 0;
  let at = 0;
  const refuse = (why: string): never => {
    throw new CorruptError(`${what} is not a raw lz4 block: ${why} at byte ${from}`);
  };
  const readLength = (nibble: number): number => {
    let length = nibble;
    if (nibble === 15) {
      for (let more = 255; more === 255;) {
        more = source[from++] ?? refuse("it ends inside a length");
        length += more;
      }
    }
    return length;
  };
  while (from < source.length) {
    const token = source[from++]!;
    const literals = readLength(token >> 4);
    if (from + literals > source.length || at + literals > size) {
      refuse(`${literals} literals do not fit`);
    }
    out.set(source.subarray(from, from + literals), at);
    from += literals;
    at += literals;
    if (from === source.length) {
      if (at !== size) {
        throw new CorruptError(`${what} decodes to ${at} bytes instead of ${size}`);
      }
      return out;
    }
    const distance = (source[from] ?? 0) | ((source[from + 1] ?? 0) << 8);
    if (from + 2 > source.length || distance === 0 || distance > at) {
      refuse(`a match ${distance} bytes back`);
    }
    from += 2;
    const length = readLength(token & 15) + MIN_MATCH;
    if (at > size - NO_MATCH_AT_END || at + length > size - LAST_LITERALS) {
      refuse(`a match of ${length} bytes does not fit`);
    }
    copyMatch(out, at, distance, length);
    at += length;
  }
  return refuse("it ends without literals");
}

function copyMatch(out: Uint8Array, at: number, distance: number, length: number): void {
  if (distance >= length) {
    out.copyWithin(at, at - distance, at - distance + length);
    return;
  }
  // The match overlaps its output: each copy doubles the bytes that the next one can take.
  let done = 0;
  let span = distance;
  while (done < length) {
    const count = Math.min(span, length - done);
    out.copyWithin(at + done, at - distance, at - distance + count);
    done += count;
    span += count;
  }
}

/** Compresses one raw block. The output depends on the input only. */
export function compressLz4(source: Uint8Array): Uint8Array {
  const size = source.length;
  const out = new Writer(new Uint8Array(size + Math.ceil(size / 255) + 16));
  const seen = new Int32Array(1 << HASH_BITS).fill(-1);
  const view = new DataView(source.buffer, source.byteOffset, size);
  const lastStart = size - NO_MATCH_AT_END;
  let anchor = 0;
  let at = 0;
  let misses = 1 << SKIP_SHIFT;
  while (at <= lastStart) {
    const word = view.getUint32(at, true);
    const slot = Math.imul(word, 2_654_435_761) >>> (32 - HASH_BITS);
    const before = seen[slot]!;
    seen[slot] = at;
    if (before < 0 || at - before > MAX_DISTANCE || view.getUint32(before, true) !== word) {
      // Increase the step while no match is found.
      at += misses++ >> SKIP_SHIFT;
      continue;
    }
    const length = matchLength(source, before, at, size - LAST_LITERALS);
    out.sequence(source.subarray(anchor, at), at - before, length);
    at += length;
    anchor = at;
    misses = 1 << SKIP_SHIFT;
  }
  out.sequence(source.subarray(anchor), 0, 0);
  return out.done();
}

function matchLength(source: Uint8Array, before: number, at: number, limit: number): number {
  let length = MIN_MATCH;
  while (at + length < limit && source[before + length] === source[at + length]) {
    length++;
  }
  return length;
}

class Writer {
  private at = 0;

  constructor(private readonly out: Uint8Array) {}

  /** Writes literals and a match; the last sequence of a block has no match, and `length` 0. */
  sequence(literals: Uint8Array, distance: number, length: number): void {
    const short = length === 0 ? 0 : length - MIN_MATCH;
    this.out[this.at++] = (Math.min(literals.length, 15) << 4) | Math.min(short, 15);
    this.length(literals.length);
    this.out.set(literals, this.at);
    this.at += literals.length;
    if (length > 0) {
      this.out[this.at++] = distance & 255;
      this.out[this.at++] = distance >> 8;
      this.length(short);
    }
  }

  done(): Uint8Array {
    return this.out.slice(0, this.at);
  }

  private length(count: number): void {
    if (count >= 15) {
      let left = count - 15;
      for (; left >= 255; left -= 255) {
        this.out[this.at++] = 255;
      }
      this.out[this.at++] = left;
    }
  }
}
