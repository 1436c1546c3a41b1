/**
 * Decoded and verified chunks, cached for later windows: windows overlap, and chunks decode as a whole. A block that is
 * read repeatedly is cached as one array, so that a window is a view of it.
 *
 * Implements "Chunk cache" of the specification, with one difference: a full process stops caching instead of evicting
 * other blocks.
 */

import type { NdArray } from "./dtypes.js";
import { MAX_CACHE_BYTES } from "./limits.js";

interface Share {
  bytes: number;
}

let heldBytes = 0;

/** A file that is not closed gives its share of the process back when it is garbage-collected. */
const forgotten = new FinalizationRegistry<Share>((share) => {
  heldBytes -= share.bytes;
});

/** The chunks of one block, oldest first, or all of its rows. */
export class BlockCache {
  private readonly chunks = new Map<number, Uint8Array>();
  private readonly share: Share = { bytes: 0 };
  /** The whole block, if it is cached as one array. */
  private whole: NdArray | null = null;
  private readBytes = 0;

  constructor(private readonly maxBytes: number) {
    forgotten.register(this, this.share);
  }

  get rows(): NdArray | null {
    return this.whole;
  }

  get(number: number): Uint8Array | undefined {
    return this.chunks.get(number);
  }

  put(number: number, data: Uint8Array): void {
    if (data.length > this.maxBytes || this.chunks.has(number) || this.whole !== null) {
      return;
    }
    for (const [oldest, { length }] of this.chunks) {
      if (this.share.bytes + data.length <= this.maxBytes && heldBytes + data.length <= MAX_CACHE_BYTES) {
        break;
      }
      this.chunks.delete(oldest);
      this.grow(-length);
    }
    if (heldBytes + data.length <= MAX_CACHE_BYTES) {
      this.chunks.set(number, data);
      this.grow(data.length);
    }
  }

  /**
   * Counts bytes that windows read, and returns whether to cache the whole block now: once windows have read as many
   * bytes as it has, if it fits without evicting other blocks. The count starts again after that.
   */
  shouldLoadAll(readBytes: number, blockBytes: number): boolean {
    this.readBytes += readBytes;
    if (this.readBytes < blockBytes || blockBytes === 0) {
      return false;
    }
    this.readBytes = 0;
    return blockBytes <= Math.min(this.maxBytes, MAX_CACHE_BYTES - heldBytes + this.share.bytes);
  }

  /** Caches the whole block in place of its chunks. */
  putRows(rows: NdArray): void {
    this.clear();
    this.whole = rows;
    this.grow(rows.data.byteLength);
  }

  clear(): void {
    this.chunks.clear();
    this.whole = null;
    this.grow(-this.share.bytes);
  }

  private grow(change: number): void {
    this.share.bytes += change;
    heldBytes += change;
  }
}
