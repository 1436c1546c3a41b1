/**
 * Checksums and hashes: CRC-32C of blocks, xxHash64 of names and time chunks. The platform provides SHA-256.
 *
 * The hashing library compiles itself on first use. Callers that open or write a file await `prepareDigests` once;
 * after that everything here is synchronous.
 */

import { createCRC32, createXXHash64 } from "hash-wasm";

import { UnsupportedError } from "./errors.js";

type Hasher = Awaited<ReturnType<typeof createCRC32>>;

const CASTAGNOLI = 0x82f63b78;

let crc: Hasher | undefined;
let xxh: Hasher | undefined;
let preparing: Promise<void> | undefined;

export function prepareDigests(): Promise<void> {
  preparing ??= prepare();
  return preparing;
}

async function prepare(): Promise<void> {
  try {
    [crc, xxh] = await Promise.all([createCRC32(CASTAGNOLI), createXXHash64(0, 0)]);
  } catch (cause) {
    preparing = undefined;
    throw new UnsupportedError("checksums need WebAssembly, which is not available here", { cause });
  }
}

export function crc32c(data: Uint8Array): number {
  return parseInt(digest(crc, data), 16);
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
    throw new Error("prepareDigests was not awaited");
  }
  return hasher.init().update(data).digest("hex");
}

/** A CRC-32C over several pieces, with a state of its own. */
export class RunningCrc32c {
  private constructor(private readonly hasher: Hasher) {}

  static async start(): Promise<RunningCrc32c> {
    return new RunningCrc32c((await createCRC32(CASTAGNOLI)).init());
  }

  restart(): void {
    this.hasher.init();
  }

  update(data: Uint8Array): void {
    this.hasher.update(data);
  }

  value(): number {
    return parseInt(this.hasher.digest("hex"), 16);
  }
}
