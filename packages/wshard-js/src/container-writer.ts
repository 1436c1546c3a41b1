/**
 * Writing of containers: entries in the order of their offsets, no overlap, zeros in between.
 * The caller provides the sink. Implements "Writing" of the specification.
 */

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
import { crc32c, prepareDigests } from "./digests.js";
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
  readonly data: Uint8Array;
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
  return { name, data, contentType, tags, compression: PLAIN, chunkBytes: 0 };
}

/** Writes all blocks, and then the index. Holds one compressed block in memory at a time. */
export async function writeContainer(
  sink: Sink,
  plans: readonly BlockPlan[],
  options: ContainerOptions,
): Promise<Written> {
  const names = plans.map((plan) => plan.name);
  const layout = new Layout(sink, options.isSealed ? [...names, META_IDENTITY] : names, options);
  await prepareDigests();
  const hashes = new Map<string, string>();
  for (const plan of plans) {
    await layout.add(plan);
    if (options.isSealed) {
      hashes.set(plan.name, await sha256(plan.data));
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
  ) {
    this.names = checkNames(names, options.alignment);
    this.namesOffset = HEADER_BYTES + ENTRY_BYTES * names.length;
    this.dataOffset = this.aligned(this.namesOffset + this.names.reduce((sum, raw) => sum + raw.length, 0));
    this.totalBytes = this.dataOffset;
  }

  async add(plan: BlockPlan): Promise<void> {
    let offset = this.aligned(this.totalBytes);
    // Empty blocks get offsets of their own too, because offsets must ascend.
    if (this.entries.at(-1)?.offset === offset) {
      offset = this.aligned(offset + 1);
    }
    const [codec, stored] = await encodeBlock(plan);
    await this.sink.write(offset, stored);
    this.entries.push({
      name: plan.name,
      codec,
      isChunked: codec === "zstd" && plan.chunkBytes > 0,
      offset,
      storedBytes: stored.length,
      sizeBytes: plan.data.length,
      checksum: crc32c(plan.data),
      contentType: plan.contentType,
      tags: plan.tags,
    });
    this.totalBytes = offset + stored.length;
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

/** Returns the stored bytes and their codec: none if compression does not make them smaller. */
async function encodeBlock(plan: BlockPlan): Promise<[codec: Codec, stored: Uint8Array]> {
  const { name, data, compression, chunkBytes } = plan;
  const { codec } = compression;
  if (codec === "none" || data.length < MIN_COMPRESS_BYTES) {
    return ["none", data];
  }
  const isChunked = codec === "zstd" && chunkBytes > 0;
  const most = Math.min(data.length, isChunked ? chunkBytes : data.length);
  if (most > MAX_DECODED_BYTES || (isChunked && Math.ceil(data.length / chunkBytes) > MAX_CHUNKS)) {
    throw new LimitExceededError(`block '${name}' has ${data.length} bytes, in frames that readers do not decode`, {
      hint: "Leave it uncompressed, change the time chunks, or split the episode.",
    });
  }
  const stored = isChunked ? await encodeChunks(data, chunkBytes, compression) : await compress(data, compression);
  return stored.length < data.length ? [codec, stored] : ["none", data];
}

/** Returns the names in UTF-8; `BadInputError` unless a file may have blocks of these names. */
function checkNames(names: readonly string[], alignment: number): Uint8Array[] {
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
