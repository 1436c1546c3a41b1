/**
 * Writing of containers: entries in the order of their offsets, no overlap, zeros in between.
 * The caller provides the sink. Implements "Writing" of the specification.
 */

import { newSha256 } from "#platform";

import { concat, encodeText, isWellFormed } from "./bytes.js";
import { compress, PLAIN, type Codec, type Compression } from "./codecs.js";
import {
  ALIGNMENTS,
  encodeEntry,
  encodeHeader,
  ENTRY_BYTES,
  HEADER_BYTES,
  JSON_CONTENT,
  WRITTEN_FLAGS,
  type BlockEntry,
} from "./container.js";
import { prepareDigests, RunningCrc32c } from "./digests.js";
import { BadInputError, LimitExceededError } from "./errors.js";
import {
  MAX_CHUNKS,
  MAX_DECODED_BYTES,
  MAX_ENTRIES,
  MAX_NAME_BYTES,
  MAX_NAMES_BYTES,
  MIN_COMPRESS_BYTES,
} from "./limits.js";
import { META_IDENTITY, sealBytes, sha256 } from "./identity.js";
import { encodeChunks } from "./seek-table.js";

/** A block to be written. `chunkBytes` splits a zstd block into time chunks of this size; 0 writes one frame. */
export interface BlockPlan {
  readonly name: string;
  readonly sizeBytes: number;
  /** Yields the bytes, and the same ones each time: a block that compression does not make smaller is read twice. */
  readonly pieces: () => Iterable<Uint8Array>;
  readonly contentType: number;
  readonly tags: number;
  readonly compression: Compression;
  readonly chunkBytes: number;
}

export interface ContainerOptions {
  readonly role: number;
  readonly alignment: number;
  readonly defaultCodec: Codec;
  readonly isSealed: boolean;
}

/** Accepts pieces at any position; gaps read as zeros. */
export interface Sink {
  write(position: number, data: Uint8Array): Promise<void> | void;
}

export interface Written {
  readonly totalBytes: number;
  /** Only if the file is sealed. */
  readonly identity: string | null;
}

/** A file in memory. */
export class MemorySink implements Sink {
  private readonly pieces: (readonly [number, Uint8Array])[] = [];

  write(position: number, data: Uint8Array): void {
    this.pieces.push([position, data]);
  }

  bytes(totalBytes: number): Uint8Array {
    const out = new Uint8Array(totalBytes);
    for (const [position, data] of this.pieces) {
      out.set(data, position);
    }
    return out;
  }
}

export function planBytes(name: string, data: Uint8Array, contentType = 0, tags = 0): BlockPlan {
  return { name, sizeBytes: data.length, pieces: () => [data], contentType, tags, compression: PLAIN, chunkBytes: 0 };
}

/** Writes all blocks, and then the index. An uncompressed block is never in memory as a whole. */
export async function writeContainer(
  sink: Sink,
  plans: readonly BlockPlan[],
  options: ContainerOptions,
): Promise<Written> {
  const names = plans.map((plan) => plan.name);
  await prepareDigests();
  const checksum = new RunningCrc32c();
  const layout = new Layout(sink, options.isSealed ? [...names, META_IDENTITY] : names, options, checksum);
  const hashes = new Map<string, string>();
  for (const plan of plans) {
    if (options.isSealed) {
      const hash = await newSha256();
      await layout.add(plan, (piece) => hash.update(piece));
      hashes.set(plan.name, hash.hex());
    } else {
      await layout.add(plan);
    }
  }
  if (!options.isSealed) {
    return { totalBytes: await layout.finish(), identity: null };
  }
  const seal = sealBytes(hashes);
  await layout.add(planBytes(META_IDENTITY, seal, JSON_CONTENT));
  return { totalBytes: await layout.finish(), identity: await sha256(seal) };
}

/** A file that is being written: blocks first, then the header and the index. */
class Layout {
  private readonly names: readonly Uint8Array[];
  private readonly namesOffset: number;
  private readonly dataOffset: number;
  private readonly entries: BlockEntry[] = [];
  private totalBytes: number;

  constructor(
    private readonly sink: Sink,
    names: readonly string[],
    private readonly options: ContainerOptions,
    private readonly checksum: RunningCrc32c,
  ) {
    this.names = checkNames(names, options.alignment);
    this.namesOffset = HEADER_BYTES + ENTRY_BYTES * names.length;
    this.dataOffset = this.aligned(this.namesOffset + this.names.reduce((sum, raw) => sum + raw.length, 0));
    this.totalBytes = this.dataOffset;
  }

  /** Writes a block, and passes its decoded bytes to `hash`. */
  async add(plan: BlockPlan, hash: (piece: Uint8Array) => void = () => undefined): Promise<void> {
    let offset = this.aligned(this.totalBytes);
    // Empty blocks get offsets of their own too, because offsets must ascend.
    if (this.entries.at(-1)?.offset === offset) {
      offset = this.aligned(offset + 1);
    }
    const { name, sizeBytes, contentType, tags, chunkBytes } = plan;
    this.checksum.restart();
    // Compressed bytes are checked before they are written, so a block that stays as it is may be read again.
    let storedBytes = isCompressible(plan) ? await this.compress(plan, offset) : null;
    const codec = storedBytes === null ? "none" : plan.compression.codec;
    for (const piece of plan.pieces()) {
      this.checksum.update(piece);
      hash(piece);
      if (codec === "none") {
        storedBytes ??= 0;
        await this.sink.write(offset + storedBytes, piece);
        storedBytes += piece.length;
      }
    }
    storedBytes ??= 0;
    const isChunked = codec === "zstd" && chunkBytes > 0;
    const checksum = this.checksum.value();
    this.entries.push({ name, codec, isChunked, offset, storedBytes, sizeBytes, checksum, contentType, tags });
    this.totalBytes = offset + storedBytes;
  }

  /** Writes the compressed block, and returns its size; null if compression does not make it smaller. */
  private async compress(plan: BlockPlan, offset: number): Promise<number | null> {
    const { sizeBytes, chunkBytes, compression } = plan;
    if (compression.codec !== "zstd" || chunkBytes === 0) {
      const pieces = [...plan.pieces()];
      const stored = await compress(pieces.length === 1 ? pieces[0]! : concat(pieces), compression);
      if (stored.length < sizeBytes) {
        await this.sink.write(offset, stored);
        return stored.length;
      }
      return null;
    }
    let done = 0;
    for await (const frame of encodeChunks(plan.pieces(), sizeBytes, chunkBytes, compression)) {
      if (done + frame.length >= sizeBytes) {
        return null; // uncompressed bytes replace what was written so far
      }
      await this.sink.write(offset + done, frame);
      done += frame.length;
    }
    return done;
  }

  /** Writes header, index and names, and returns the size of the file. */
  async finish(): Promise<number> {
    const { totalBytes, namesOffset, dataOffset, entries, names } = this;
    const { role, alignment, defaultCodec } = this.options;
    const fields = { role, alignment, defaultCodec, flags: WRITTEN_FLAGS, schemaOffset: 0 };
    const header = encodeHeader({ ...fields, entryCount: entries.length, namesOffset, dataOffset, totalBytes });
    const rows: Uint8Array[] = [];
    let at = 0;
    for (const [number, entry] of entries.entries()) {
      rows.push(encodeEntry(entry, at));
      at += names[number]!.length;
    }
    await this.sink.write(0, concat([header, ...rows, ...names]));
    return totalBytes;
  }

  private aligned(offset: number): number {
    const unit = this.options.alignment || 1;
    return Math.ceil(offset / unit) * unit;
  }
}

/** Returns whether readers decode a compressed block of this size: in one frame if `chunkBytes` is 0. */
export function isDecodable(sizeBytes: number, chunkBytes: number): boolean {
  const most = chunkBytes > 0 ? Math.min(sizeBytes, chunkBytes) : sizeBytes;
  return most <= MAX_DECODED_BYTES && (chunkBytes === 0 || Math.ceil(sizeBytes / chunkBytes) <= MAX_CHUNKS);
}

/** Returns whether to compress a block; `LimitExceededError` for frames that no reader decodes. */
function isCompressible({ name, sizeBytes, compression, chunkBytes }: BlockPlan): boolean {
  if (compression.codec === "none" || sizeBytes < MIN_COMPRESS_BYTES) {
    return false;
  }
  if (!isDecodable(sizeBytes, compression.codec === "zstd" ? chunkBytes : 0)) {
    throw new LimitExceededError(`block '${name}' has ${sizeBytes} bytes, in frames that readers do not decode`, {
      hint: "Leave it uncompressed, change the time chunks, or split the episode.",
    });
  }
  return true;
}

/** Returns the names in UTF-8; `BadInputError` unless a file may have blocks of these names. */
export function checkNames(names: readonly string[], alignment: number): Uint8Array[] {
  if (!ALIGNMENTS.includes(alignment)) {
    throw new BadInputError(`the alignment ${alignment} is not one of ${ALIGNMENTS.join(", ")}`);
  }
  if (new Set(names).size !== names.length) {
    throw new BadInputError("two blocks have the same name");
  }
  if (!names.every(isWellFormed)) {
    throw new BadInputError("a block name has a lone surrogate");
  }
  const raw = names.map(encodeText);
  if (raw.some((name) => name.length === 0 || name.length > MAX_NAME_BYTES)) {
    throw new BadInputError(`a block name is empty or longer than ${MAX_NAME_BYTES} bytes`);
  }
  if (names.length > MAX_ENTRIES || raw.reduce((sum, name) => sum + name.length, 0) > MAX_NAMES_BYTES) {
    throw new LimitExceededError(`the file would have ${names.length} blocks, which exceeds the limits`);
  }
  return raw;
}
