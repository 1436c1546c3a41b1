/**
 * Reading of files: the header and the index on open, and exactly the requested bytes later.
 * Implements "Reading" of the specification.
 */

import { ChunkCache } from "./chunk-cache.js";
import { decompress } from "./codecs.js";
import {
  hasChecksums,
  HEADER_BYTES,
  parseHeader,
  parseIndex,
  ROLE_EPISODE,
  ROLE_MANIFEST,
  type BlockEntry,
  type Header,
} from "./container.js";
import { crc32c, prepareDigests, RunningCrc32c } from "./digests.js";
import { decodeArray, type NdArray } from "./dtypes.js";
import { BadInputError, CorruptError, LimitExceededError, NotFoundError, UnsupportedError } from "./errors.js";
import { framesBlock, parseFrames, type FrameEntry, type FrameIndex } from "./frame-index.js";
import { CACHE_BYTES, MAX_FRAME_BYTES, MAX_JSON_BYTES, PIECE_BYTES } from "./limits.js";
import { findBlockType, type BlockType } from "./block-type.js";
import { META_BLOCKS, META_EPISODE, parseInfo, stepBytes, type EpisodeInfo } from "./metadata.js";
import { OpenSource, type Source } from "./source.js";
import { readChunks, readSeekTable, type SeekTable } from "./seek-table.js";

export interface OpenOptions {
  /** The decoded chunks of each block that windows cache: 8 MiB by default, and none with 0. */
  readonly cacheBytes?: number;
}

/** Opens an episode. Reads the header and the index, nothing else. */
export async function openWShard(where: Source, options: OpenOptions = {}): Promise<WShardFile> {
  const { cacheBytes = CACHE_BYTES } = options;
  if (!(cacheBytes >= 0)) {
    throw new BadInputError(`cacheBytes ${cacheBytes} is not valid`);
  }
  return asEpisode(await readContainer(await OpenSource.open(where), cacheBytes));
}

/** Opens a container of any role. */
export async function openContainer(where: Source): Promise<WShardFile> {
  return readContainer(await OpenSource.open(where));
}

export async function readContainer(source: OpenSource, cacheBytes = 0): Promise<WShardFile> {
  try {
    await prepareDigests();
    const header = parseHeader(await source.readRange(0, Math.min(HEADER_BYTES, source.size)), source.size);
    const entries = parseIndex(header, await source.readRange(0, header.dataOffset));
    return new WShardFile(source, header, entries, cacheBytes);
  } catch (error) {
    await source.close();
    throw error;
  }
}

/** Returns the same file if it is an episode. */
export async function asEpisode(file: WShardFile): Promise<WShardFile> {
  const { role } = file.header;
  if (role !== ROLE_EPISODE) {
    await file.close();
    const shown = `0x${role.toString(16).padStart(2, "0")}`;
    const isManifest = role === ROLE_MANIFEST;
    throw new UnsupportedError(
      `the file has the role ${shown}, not that of an episode`,
      isManifest ? { hint: "This is a manifest of chunks: use openJoined." } : {},
    );
  }
  return file;
}

/** An open file: its block names, and a reader for each. */
export class WShardFile {
  private readonly readers = new Map<string, BlockReader>();
  private reading: Promise<EpisodeInfo | null> | undefined;
  private isClosed = false;

  constructor(
    private readonly source: OpenSource,
    readonly header: Header,
    private readonly entries: ReadonlyMap<string, BlockEntry>,
    private readonly cacheBytes: number,
  ) {}

  /** The names of all blocks, in the order of the index. */
  get blocks(): readonly string[] {
    return [...this.entries.keys()];
  }

  /** True if bytes that are read may belong to the caller, and must be copied before they are returned. */
  get isShared(): boolean {
    return this.source.isShared;
  }

  has(name: string): boolean {
    return this.entries.has(name);
  }

  /** Returns a reader; `NotFoundError` if there is no such block. */
  block(name: string): BlockReader {
    const known = this.readers.get(name);
    if (known !== undefined) {
      return known;
    }
    const entry = this.entries.get(name);
    if (entry === undefined) {
      const some = this.blocks.slice(0, 20).join(", ");
      throw new NotFoundError(`there is no block '${name}'`, { hint: `Blocks: ${some}.` });
    }
    const isCached = entry.codec !== "none" && this.cacheBytes > 0;
    const reader = new BlockReader(this, entry, isCached ? new ChunkCache(this.cacheBytes) : null);
    this.readers.set(name, reader);
    return reader;
  }

  /** The parsed metadata blocks, read on first use; `null` if the file has no `meta/episode`. */
  info(): Promise<EpisodeInfo | null> {
    // A failure is not cached: the network may recover.
    this.reading ??= this.readInfo().catch((error: unknown) => {
      this.reading = undefined;
      throw error;
    });
    return this.reading;
  }

  private async readInfo(): Promise<EpisodeInfo | null> {
    if (!this.has(META_EPISODE)) {
      return null;
    }
    const blocks = new Map<string, Uint8Array>();
    for (const name of META_BLOCKS.filter((name) => this.has(name))) {
      blocks.set(name, await this.readJson(name));
    }
    return parseInfo(blocks);
  }

  /** Reads the frame index of an encoded block; `NotFoundError` if it has none. */
  async frameIndex(block: string): Promise<FrameIndex> {
    const { sizeBytes } = this.block(block).entry;
    return parseFrames(await this.block(framesBlock(block)).raw(), sizeBytes);
  }

  /** Returns the bytes of a metadata block, whose size is bounded. */
  async readJson(name: string): Promise<Uint8Array> {
    const reader = this.block(name);
    if (reader.entry.sizeBytes > MAX_JSON_BYTES) {
      throw new CorruptError(`block '${name}' has ${reader.entry.sizeBytes} bytes; the most is ${MAX_JSON_BYTES}`);
    }
    return reader.raw();
  }

  async readRange(start: number, end: number): Promise<Uint8Array> {
    if (this.isClosed) {
      throw new BadInputError("the file is closed");
    }
    return this.source.readRange(start, end);
  }

  /** Closes the file, and drops its cache. Arrays that were read from it stay valid. */
  async close(): Promise<void> {
    if (!this.isClosed) {
      this.isClosed = true;
      for (const reader of this.readers.values()) {
        reader.clearCache();
      }
      await this.source.close();
    }
  }
}

/** One block of an open file. */
export class BlockReader {
  private table: Promise<SeekTable> | undefined;
  private cachedType: BlockType | undefined;

  constructor(
    private readonly file: WShardFile,
    readonly entry: BlockEntry,
    private readonly cache: ChunkCache | null,
  ) {}

  /** Element type, step shape and number of rows. Reads the metadata blocks on first use. */
  async blockType(): Promise<BlockType> {
    this.cachedType ??= findBlockType(this.entry.name, this.entry.sizeBytes, await this.file.info());
    return this.cachedType;
  }

  /**
   * Reads and verifies the whole block, in its declared type and shape; as u8 without a declaration. May be a view of the
   * memory that the file was opened over.
   */
  async read(): Promise<NdArray> {
    const blockType = await this.blockType();
    return decodeArray(await this.raw(), blockType.dtype, [blockType.rows, ...blockType.shape]);
  }

  /**
   * Returns rows `start` up to `stop`. Uncompressed: reads only these bytes, which no checksum covers. With time chunks:
   * decodes and verifies only their chunks. Otherwise: the whole block. Decoded chunks and blocks are cached.
   */
  async window(start: number, stop: number): Promise<NdArray> {
    const blockType = this.cachedType ?? (await this.blockType());
    const { rows } = blockType;
    if (!(Number.isInteger(start) && Number.isInteger(stop) && 0 <= start && start <= stop && stop <= rows)) {
      throw new BadInputError(`rows ${start}…${stop} are not within the ${rows} of '${this.entry.name}'`);
    }
    const width = stepBytes(blockType);
    const data = await this.slice(start * width, stop * width, this.cache);
    return decodeArray(data, blockType.dtype, [stop - start, ...blockType.shape]);
  }

  /** Returns the decoded bytes, verified. */
  async raw(): Promise<Uint8Array> {
    const data = await this.slice(0, this.entry.sizeBytes);
    this.check(crc32c(data));
    return data;
  }

  /** Returns the bytes of one frame of an encoded block, verified with their own checksum. */
  async frameBytes(entry: FrameEntry): Promise<Uint8Array> {
    const { offset, sizeBytes, checksum } = entry;
    const { name, sizeBytes: blockBytes } = this.entry;
    if (sizeBytes > MAX_FRAME_BYTES) {
      throw new LimitExceededError(`a frame of block '${name}' has ${sizeBytes} bytes; the most is ${MAX_FRAME_BYTES}`);
    }
    if (!(offset >= 0 && sizeBytes >= 0 && offset + sizeBytes <= blockBytes)) {
      throw new CorruptError(`a frame at ${offset}+${sizeBytes} is outside the ${blockBytes} bytes of block '${name}'`);
    }
    const data = await this.slice(offset, offset + sizeBytes, this.cache);
    if (crc32c(data) !== checksum) {
      throw new CorruptError(`the frame at byte ${offset} of block '${name}' fails its checksum`);
    }
    return data;
  }

  /** Yields the decoded bytes, and verifies the checksum at the end; a compressed block is one piece. */
  async *pieces(): AsyncGenerator<Uint8Array, void, void> {
    const { codec, sizeBytes } = this.entry;
    if (codec !== "none") {
      yield await this.raw();
      return;
    }
    const checksum = await RunningCrc32c.start();
    for (let start = 0; start < sizeBytes; start += PIECE_BYTES) {
      const piece = await this.slice(start, Math.min(start + PIECE_BYTES, sizeBytes));
      checksum.update(piece);
      yield piece;
    }
    this.check(checksum.value());
  }

  clearCache(): void {
    this.cache?.clear();
  }

  private async slice(low: number, high: number, cache: ChunkCache | null = null): Promise<Uint8Array> {
    const { entry, file } = this;
    const { offset, codec } = entry;
    if (codec === "none") {
      return file.readRange(offset + low, offset + high);
    }
    const readRange = (start: number, end: number): Promise<Uint8Array> => file.readRange(start, end);
    if (entry.isChunked) {
      this.table ??= readSeekTable(entry, readRange).catch((error: unknown) => {
        this.table = undefined;
        throw error;
      });
      return readChunks(entry, await this.table, [low, high], readRange, cache);
    }
    const cached = cache?.get(0);
    if (cached !== undefined) {
      return cached.slice(low, high);
    }
    const stored = await file.readRange(offset, offset + entry.storedBytes);
    const data = await decompress(stored, codec, entry.sizeBytes, `block '${entry.name}'`);
    if (cache !== null || low !== 0 || high !== entry.sizeBytes) {
      this.check(crc32c(data));
    }
    cache?.put(0, data);
    // A copy, because the caller may change the array.
    return cache === null ? data.subarray(low, high) : data.slice(low, high);
  }

  private check(checksum: number): void {
    const promised = this.entry.checksum;
    // A zero means "absent" only if the header does not promise checksums.
    const isAbsent = promised === 0 && !hasChecksums(this.file.header);
    if (checksum !== promised && !isAbsent) {
      throw new CorruptError(
        `block '${this.entry.name}' has the checksum ${hex(checksum)} instead of ${hex(promised)}`,
      );
    }
  }
}

function hex(word: number): string {
  return word.toString(16).padStart(8, "0");
}
