/**
 * Time chunks: a compressed block in independent zstd frames, each with a checksum.
 *
 * The stored bytes are the frames, then a seek table in a skippable frame. Implements "Time chunks" of the
 * specification.
 */

import type { BlockCache } from "./block-cache.js";
import { concat, viewOf } from "./bytes.js";
import { checkExpansion, compress, decompress, type Compression } from "./codecs.js";
import type { BlockEntry } from "./container.js";
import { xxh64Low } from "./digests.js";
import { CorruptError, LimitExceededError } from "./errors.js";
import { MAX_CHUNKS } from "./limits.js";

const SKIPPABLE_MAGIC = 0x184d2a5e;
const FOOTER_MAGIC = 0x8f92eab1;
const HAS_CHECKSUMS = 0x80;
const HEAD_BYTES = 8;
const ROW_BYTES = 12;
const FOOTER_BYTES = 9;

export type ReadRange = (start: number, end: number) => Promise<Uint8Array> | Uint8Array;

/**
 * The boundaries of the chunks: `stored` in the block's bytes, `decoded` in the decoded bytes. There is one boundary more
 * than there are chunks.
 */
export interface SeekTable {
  readonly stored: Float64Array;
  readonly decoded: Float64Array;
  readonly checksums: Uint32Array;
}

/** Reads the table from the end of the block, and checks every size in it against the entry. */
export async function readSeekTable(entry: BlockEntry, readRange: ReadRange): Promise<SeekTable> {
  const what = `the seek table of block '${entry.name}'`;
  const end = entry.offset + entry.storedBytes;
  if (entry.storedBytes < HEAD_BYTES + FOOTER_BYTES) {
    throw new CorruptError(`${what} does not fit in ${entry.storedBytes} bytes`);
  }
  const footer = viewOf(await readRange(end - FOOTER_BYTES, end));
  const [count, descriptor, magic] = [footer.getUint32(0, true), footer.getUint8(4), footer.getUint32(5, true)];
  if (magic !== FOOTER_MAGIC || descriptor !== HAS_CHECKSUMS) {
    throw new CorruptError(`${what} ends with 0x${magic.toString(16)} and 0x${descriptor.toString(16)}`);
  }
  const tableBytes = count * ROW_BYTES + FOOTER_BYTES;
  if (count > MAX_CHUNKS || HEAD_BYTES + tableBytes > entry.storedBytes) {
    throw new CorruptError(`${what} lists ${count} chunks in ${entry.storedBytes} bytes`);
  }
  const table = viewOf(await readRange(end - HEAD_BYTES - tableBytes, end - FOOTER_BYTES));
  if (table.getUint32(0, true) !== SKIPPABLE_MAGIC || table.getUint32(4, true) !== tableBytes) {
    throw new CorruptError(`${what} does not begin as a skippable frame`);
  }
  return parseRows(entry, table, count, what);
}

function parseRows(entry: BlockEntry, table: DataView, count: number, what: string): SeekTable {
  const stored = new Float64Array(count + 1);
  const decoded = new Float64Array(count + 1);
  const checksums = new Uint32Array(count);
  for (let number = 0; number < count; number++) {
    const at = HEAD_BYTES + ROW_BYTES * number;
    stored[number + 1] = stored[number]! + table.getUint32(at, true);
    decoded[number + 1] = decoded[number]! + table.getUint32(at + 4, true);
    checksums[number] = table.getUint32(at + 8, true);
  }
  const [storedSum, decodedSum] = [stored[count]!, decoded[count]!];
  const tableBytes = HEAD_BYTES + ROW_BYTES * count + FOOTER_BYTES;
  if (storedSum + tableBytes !== entry.storedBytes || decodedSum !== entry.sizeBytes) {
    throw new CorruptError(`${what} sums to ${storedSum} and ${decodedSum} bytes, which contradicts its entry`);
  }
  for (let number = 0; number < count; number++) {
    const size = stored[number + 1]! - stored[number]!;
    const promised = decoded[number + 1]! - decoded[number]!;
    if (size === 0 || promised === 0) {
      throw new CorruptError(`${what} has an empty chunk at ${number}`);
    }
    checkExpansion("zstd", size, promised, `time chunk ${number} of block '${entry.name}'`);
  }
  return { stored, decoded, checksums };
}

/** Returns the decoded bytes `start`…`end`, fetching and decoding only those chunks that are not cached. */
export async function readChunks(
  entry: BlockEntry,
  table: SeekTable,
  [start, end]: readonly [number, number],
  readRange: ReadRange,
  cache: BlockCache | null,
): Promise<Uint8Array> {
  if (start === end) {
    return new Uint8Array(0);
  }
  const { stored, decoded } = table;
  const [first, last] = [chunkAt(decoded, start), chunkAt(decoded, end - 1)];
  const out = allocate(end - start, entry);
  let data: Uint8Array | undefined;
  let low = 0;
  for (let number = first; number <= last; number++) {
    let piece = cache?.get(number);
    if (piece === undefined) {
      if (data === undefined) {
        low = stored[number]!;
        data = await readRange(entry.offset + low, entry.offset + stored[last + 1]!);
      }
      const frame = data.subarray(stored[number]! - low, stored[number + 1]! - low);
      piece = await decodeChunk(entry, table, number, frame);
      cache?.put(number, piece);
    }
    const base = decoded[number]!;
    const from = Math.max(start - base, 0);
    out.set(piece.subarray(from, Math.min(end - base, piece.length)), base + from - start);
  }
  return out;
}

async function decodeChunk(entry: BlockEntry, table: SeekTable, number: number, data: Uint8Array): Promise<Uint8Array> {
  const what = `time chunk ${number} of block '${entry.name}'`;
  const piece = await decompress(data, "zstd", table.decoded[number + 1]! - table.decoded[number]!, what);
  if (xxh64Low(piece) !== table.checksums[number]) {
    throw new CorruptError(`${what} fails its checksum`);
  }
  return piece;
}

/** Returns the chunk of this decoded byte. */
function chunkAt(decoded: Float64Array, byte: number): number {
  let [low, high] = [0, decoded.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (decoded[middle]! <= byte) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

function allocate(size: number, entry: BlockEntry): Uint8Array {
  try {
    return new Uint8Array(size);
  } catch (cause) {
    throw new LimitExceededError(`${size} bytes of block '${entry.name}' do not fit in memory`, {
      hint: "Read it in windows.",
      cause,
    });
  }
}

/** Yields the stored bytes of a block with time chunks of `chunkBytes` decoded bytes: its frames, then the table. */
export async function* encodeChunks(
  pieces: Iterable<Uint8Array>,
  sizeBytes: number,
  chunkBytes: number,
  how: Compression,
): AsyncGenerator<Uint8Array, void, void> {
  const count = Math.ceil(sizeBytes / chunkBytes);
  const table = new Uint8Array(HEAD_BYTES + ROW_BYTES * count + FOOTER_BYTES);
  const view = viewOf(table);
  view.setUint32(0, SKIPPABLE_MAGIC, true);
  view.setUint32(4, ROW_BYTES * count + FOOTER_BYTES, true);
  let at = HEAD_BYTES;
  for (const chunk of inChunks(pieces, chunkBytes)) {
    const frame = await compress(chunk, how);
    view.setUint32(at, frame.length, true);
    view.setUint32(at + 4, chunk.length, true);
    view.setUint32(at + 8, xxh64Low(chunk), true);
    at += ROW_BYTES;
    yield frame;
  }
  view.setUint32(at, count, true);
  view.setUint8(at + 4, HAS_CHECKSUMS);
  view.setUint32(at + 5, FOOTER_MAGIC, true);
  yield table;
}

/** Cuts pieces of any size into chunks of `chunkBytes`; the last one may be shorter. */
function* inChunks(pieces: Iterable<Uint8Array>, chunkBytes: number): Generator<Uint8Array, void, void> {
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  for (let piece of pieces) {
    while (heldBytes + piece.length >= chunkBytes) {
      const taken = chunkBytes - heldBytes;
      yield heldBytes === 0 ? piece.subarray(0, taken) : concat([...held, piece.subarray(0, taken)]);
      [held, heldBytes, piece] = [[], 0, piece.subarray(taken)];
    }
    if (piece.length > 0) {
      // A copy, because the source may use its buffer again.
      held.push(piece.slice());
      heldBytes += piece.length;
    }
  }
  if (heldBytes > 0) {
    yield concat(held);
  }
}
