/**
 * Checksums and hashes: CRC-32C of blocks, xxHash64 of names and time chunks. The platform provides SHA-256.
 *
 * The hashes compile on first use. Callers that open or write a file await `prepareDigests` once; after that everything
 * here is synchronous.
 */

import { createXXHash64 } from "hash-wasm";

import { makeCrc32c } from "./crc32c.js";
import { UnsupportedError } from "./errors.js";

type Hasher = Awaited<ReturnType<typeof createXXHash64>>;

let advance: ReturnType<typeof makeCrc32c> | undefined;
let xxh: Hasher | undefined;
let preparing: Promise<void> | undefined;

export function prepareDigests(): Promise<void> {
  preparing ??= prepare();
  return preparing;
}

async function prepare(): Promise<void> {
  try {
    xxh = await createXXHash64(0, 0);
    advance = makeCrc32c();
  } catch (cause) {
    preparing = undefined;
    throw new UnsupportedError("checksums need WebAssembly, which is not available here", { cause });
  }
}

export function crc32c(data: Uint8Array): number {
  return new RunningCrc32c().update(data).value();
}

export function xxh64(data: Uint8Array): bigint {
  return BigInt(`0x${digest(xxh, data)}`);
}

/** The low half of xxHash64, the checksum of a time chunk. */
export function xxh64Low(data: Uint8Array): number {
  return parseInt(digest(xxh, data).slice(8), 16);
}

function digest(hasher: Hasher | undefined, data: Uint8Array): string {
  if (hasher === undefined) {
    throw notPrepared();
  }
  return hasher.init().update(data).digest("hex");
}

/** A CRC-32C over several pieces. */
export class RunningCrc32c {
  private state = -1;

  restart(): void {
    this.state = -1;
  }

  update(data: Uint8Array): this {
    if (advance === undefined) {
      throw notPrepared();
    }
    this.state = advance(this.state, data);
    return this;
  }

  value(): number {
    return ~this.state >>> 0;
  }
}

function notPrepared(): Error {
  return new Error("prepareDigests was not awaited");
}
