/**
 * Decoded and verified chunks, cached for later windows: windows overlap, and chunks decode as a whole.
 *
 * Implements "Chunk cache" of the specification, with two differences: a block in a single frame is cached like one
 * chunk, and a full process stops caching instead of evicting other blocks.
 */

import { MAX_CACHE_BYTES } from "./limits.js";

interface Share {
  bytes: number;
}

let heldBytes = 0;

/** A file that is not closed gives its share of the process back when it is garbage-collected. */
const forgotten = new FinalizationRegistry<Share>((share) => {
  heldBytes -= share.bytes;
});

/** The chunks of one block, oldest first. */
export class ChunkCache {
  private readonly chunks = new Map<number, Uint8Array>();
  private readonly share: Share = { bytes: 0 };

  constructor(private readonly maxBytes: number) {
    forgotten.register(this, this.share);
  }

  get(number: number): Uint8Array | undefined {
    return this.chunks.get(number);
  }

  put(number: number, data: Uint8Array): void {
    if (data.length > this.maxBytes || this.chunks.has(number)) {
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

  clear(): void {
    this.chunks.clear();
    this.grow(-this.share.bytes);
  }

  private grow(change: number): void {
    this.share.bytes += change;
    heldBytes += change;
  }
}
