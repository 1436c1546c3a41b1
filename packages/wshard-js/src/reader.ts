/**
 * Reading of files: the header and the index on open, and exactly the requested bytes later.
 * Implements "Reading" of the specification.
 */

import { BlockCache } from "./block-cache.js";
import { listChannels, tickTimesNs, type ChannelInfo } from "./channel-list.js";
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
import { decodeArray, dtypeBytes, product, viewRows, type NdArray } from "./dtypes.js";
import { BadInputError, CorruptError, LimitExceededError, NotFoundError, UnsupportedError, WShardError } from "./errors.js";
import { adjacentRuns, framesBlock, parseFrames, type FrameEntry, type FrameIndex } from "./frame-index.js";
import type { HttpOptions } from "./http.js";
import { CACHE_BYTES, MAX_FRAME_BYTES, MAX_JSON_BYTES, PIECE_BYTES, READ_COST_BYTES } from "./limits.js";
import { findBlockType, TIMESTAMPS, type BlockType } from "./block-type.js";
import { META_BLOCKS, META_EPISODE, parseInfo, stepBytes, type EpisodeInfo } from "./metadata.js";
import { OpenSource, type Source } from "./source.js";
import { readChunks, readSeekTable, type SeekTable } from "./seek-table.js";

export interface OpenOptions {
  /**
   * The memory for windows of each block: 8 MiB by default, and none with 0. All files of a process take 2 GiB at most.
   * A block of a local file that fits is cached as a whole once windows have read about as many bytes as it has.
   */
  readonly cacheBytes?: number;
  /** Headers, credentials and the like, if the file is at an address. */
  readonly http?: HttpOptions;
}

/** Opens an episode. Reads the header and the index, nothing else. */
export async function openWShard(where: Source, options: OpenOptions = {}): Promise<WShardFile> {
  const { cacheBytes = CACHE_BYTES } = options;
  if (!(cacheBytes >= 0)) {
    throw new BadInputError(`cacheBytes ${cacheBytes} is not valid`);
  }
  return asEpisode(await readContainer(await OpenSource.open(where, options.http), cacheBytes));
}

/** Opens a container of any role. */
export async function openContainer(where: Source, http: HttpOptions = {}): Promise<WShardFile> {
  return readContainer(await OpenSource.open(where, http));
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
  private hasClosed = false;

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

  /** True after `close`. */
  get isClosed(): boolean {
    return this.hasClosed;
  }

  /** True if the whole file is in memory, so that ranges are views. */
  get isMemory(): boolean {
    return this.source.isMemory;
  }

  /** True if the file is on this machine. */
  get isLocal(): boolean {
    return this.source.isLocal;
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
    const isCached = this.cacheBytes > 0 && (entry.codec !== "none" || this.source.isLocal);
    const reader = new BlockReader(this, entry, isCached ? new BlockCache(this.cacheBytes) : null);
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

  /** Lists the channels and series with their types, in the order of the file. */
  async channels(): Promise<readonly ChannelInfo[]> {
    return listChannels(this, await this.requireInfo());
  }

  /**
   * Returns the times of steps `start` up to `stop` in nanoseconds: those that were recorded, or, at a fixed rate, those
   * from the first step on.
   */
  async timesNs(start: number, stop: number): Promise<BigInt64Array> {
    const info = await this.requireInfo();
    if (info.timebase.type === "timestamps_ns") {
      const { data, dtype } = await this.block(TIMESTAMPS).window(start, stop);
      if (dtype !== "i64") {
        throw new UnsupportedError(`block '${TIMESTAMPS}' is declared as ${dtype}, not as i64`);
      }
      return data;
    }
    checkRows("the episode", info.length, start, stop);
    return tickTimesNs(info, start, stop);
  }

  private async requireInfo(): Promise<EpisodeInfo> {
    const info = await this.info();
    if (info === null) {
      throw new CorruptError(`there is no block '${META_EPISODE}'`);
    }
    return info;
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

  /** Returns the bytes at once if they are at hand, without a promise. */
  readRange(start: number, end: number): Uint8Array | Promise<Uint8Array> {
    if (this.hasClosed) {
      throw new BadInputError("the file is closed");
    }
    return this.source.readRange(start, end);
  }

  /** Closes the file, and drops its cache. Arrays that were read from it stay valid. */
  async close(): Promise<void> {
    if (!this.hasClosed) {
      this.hasClosed = true;
      for (const reader of this.readers.values()) {
        reader.clearCache();
      }
      await this.source.close();
    }
  }
}

/** A frame with its bytes. */
export interface EncodedFrame extends FrameEntry {
  /** Memory of its own, so that it may be passed to a decoder or a worker. */
  readonly data: Uint8Array<ArrayBuffer>;
}

/** One block of an open file. */
export class BlockReader {
  private table: Promise<SeekTable> | undefined;
  private cachedType: BlockType | undefined;
  /** The elements of a row. */
  private width = 0;
  /** The block as one array over the memory that the file was opened over. */
  private mapped: NdArray | null = null;

  constructor(
    private readonly file: WShardFile,
    readonly entry: BlockEntry,
    private readonly cache: BlockCache | null,
  ) {}

  /** Element type, step shape and number of rows. Reads the metadata blocks on first use. */
  async blockType(): Promise<BlockType> {
    if (this.cachedType === undefined) {
      const found = findBlockType(this.entry.name, this.entry.sizeBytes, await this.file.info());
      this.width = product(found.shape);
      this.cachedType = found;
    }
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
   *
   * The array may be a view of the cache, or of the memory that the file was opened over: change only a copy.
   */
  async window(start: number, stop: number): Promise<NdArray> {
    return this.cachedWindow(start, stop) ?? (await this.readWindow(start, stop));
  }

  /** Returns the same rows as `window` without waiting; null unless the whole block is in memory. */
  cachedWindow(start: number, stop: number): NdArray | null {
    const rows = this.mapped ?? this.cache?.rows ?? null;
    if (rows === null || this.file.isClosed) {
      return null;
    }
    if (rows.data.length === 0) {
      // A caller that transfers a window to a worker takes the memory of the block with it.
      this.mapped = null;
      this.clearCache();
      return null;
    }
    checkRows(`block '${this.entry.name}'`, rows.shape[0]!, start, stop);
    return viewRows(rows, start, stop, this.width);
  }

  private async readWindow(start: number, stop: number): Promise<NdArray> {
    const blockType = await this.blockType();
    const { dtype, shape, rows } = blockType;
    checkRows(`block '${this.entry.name}'`, rows, start, stop);
    const step = stepBytes(blockType);
    const data = await this.slice(start * step, stop * step, this.cache);
    if (this.file.isMemory) {
      await this.map(blockType);
    } else if (this.file.isLocal && this.cache !== null) {
      const readBytes = this.entry.codec === "none" ? Math.max(data.length, READ_COST_BYTES) : data.length;
      if (this.cache.shouldLoadAll(readBytes, this.entry.sizeBytes)) {
        await this.cacheAll(this.cache, blockType);
      }
    }
    return decodeArray(data, dtype, [stop - start, ...shape]);
  }

  /** Keeps the block as an array over the memory of the file. Not booleans, whose bytes must be inspected. */
  private async map({ dtype, shape, rows }: BlockType): Promise<void> {
    const { codec, sizeBytes } = this.entry;
    if (codec !== "none" || dtype === "bool") {
      return;
    }
    const data = await this.slice(0, sizeBytes);
    if (data.byteOffset % dtypeBytes(dtype) === 0) {
      this.mapped = decodeArray(data, dtype, [rows, ...shape]);
    }
  }

  private async cacheAll(cache: BlockCache, { dtype, shape, rows }: BlockType): Promise<void> {
    try {
      const { codec, isChunked, sizeBytes } = this.entry;
      const isFrame = codec !== "none" && !isChunked;
      const data = isFrame ? await this.decodeFrame(codec, cache) : await this.slice(0, sizeBytes, cache);
      cache.putRows(decodeArray(data, dtype, [rows, ...shape]));
    } catch (error) {
      // The window that needs damaged bytes reports them.
      if (!(error instanceof WShardError)) {
        throw error;
      }
    }
  }

  /** Returns the decoded bytes, verified. */
  async raw(): Promise<Uint8Array> {
    const data = await this.slice(0, this.entry.sizeBytes);
    this.check(crc32c(data));
    return data;
  }

  /** Returns the bytes of one frame of an encoded block, verified with their own checksum. */
  async frameBytes(entry: FrameEntry): Promise<Uint8Array<ArrayBuffer>> {
    return (await this.readEntries([entry]))[0]!.data;
  }

  /**
   * Returns the verified frames from which a decoder makes frames `first` to `last`, both included and counted in the order
   * they are shown. They are in decoding order; adjacent ones are read at once.
   */
  async readFrames(index: FrameIndex, first: number, last: number = first): Promise<readonly EncodedFrame[]> {
    const out: EncodedFrame[] = [];
    for (const run of adjacentRuns(index.entries.slice(...index.entrySpan(first, last)))) {
      out.push(...(await this.readEntries(run)));
    }
    return out;
  }

  /** Reads adjacent frames in one range. */
  private async readEntries(entries: readonly FrameEntry[]): Promise<readonly EncodedFrame[]> {
    entries.forEach((entry) => this.checkFrame(entry));
    const [start, last] = [entries[0]!.offset, entries.at(-1)!];
    const bytes = await this.slice(start, last.offset + last.sizeBytes, this.cache);
    return entries.map((entry) => {
      const at = entry.offset - start;
      // Without a copy only if the bytes are those of this frame alone, and no memory of the caller.
      const isOwn = entries.length === 1 && !this.file.isShared;
      const data = isOwn ? (bytes as Uint8Array<ArrayBuffer>) : bytes.slice(at, at + entry.sizeBytes);
      if (crc32c(data) !== entry.checksum) {
        throw new CorruptError(`the frame at byte ${entry.offset} of block '${this.entry.name}' fails its checksum`);
      }
      return { ...entry, data };
    });
  }

  private checkFrame({ offset, sizeBytes }: FrameEntry): void {
    const { name, sizeBytes: blockBytes } = this.entry;
    if (sizeBytes > MAX_FRAME_BYTES) {
      throw new LimitExceededError(`a frame of block '${name}' has ${sizeBytes} bytes; the most is ${MAX_FRAME_BYTES}`);
    }
    if (!(offset >= 0 && sizeBytes >= 0 && offset + sizeBytes <= blockBytes)) {
      throw new CorruptError(`a frame at ${offset}+${sizeBytes} is outside the ${blockBytes} bytes of block '${name}'`);
    }
  }

  /** Yields the decoded bytes, and verifies the checksum at the end; a compressed block is one piece. */
  async *pieces(): AsyncGenerator<Uint8Array, void, void> {
    const { codec, sizeBytes } = this.entry;
    if (codec !== "none") {
      yield await this.raw();
      return;
    }
    const checksum = new RunningCrc32c();
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

  /** Returns decoded bytes, which are never a view of the cache. */
  private slice(low: number, high: number, cache: BlockCache | null = null): Uint8Array | Promise<Uint8Array> {
    const { codec, isChunked, offset } = this.entry;
    if (codec === "none") {
      return this.file.readRange(offset + low, offset + high);
    }
    return isChunked ? this.sliceChunks(low, high, cache) : this.sliceFrame(codec, low, high, cache);
  }

  private async sliceChunks(low: number, high: number, cache: BlockCache | null): Promise<Uint8Array> {
    const readRange = (start: number, end: number): Uint8Array | Promise<Uint8Array> => this.file.readRange(start, end);
    this.table ??= readSeekTable(this.entry, readRange).catch((error: unknown) => {
      this.table = undefined;
      throw error;
    });
    return readChunks(this.entry, await this.table, [low, high], readRange, cache);
  }

  private async sliceFrame(
    codec: "zstd" | "lz4",
    low: number,
    high: number,
    cache: BlockCache | null,
  ): Promise<Uint8Array> {
    if (cache === null && low === 0 && high === this.entry.sizeBytes) {
      return this.decodeStored(codec);
    }
    return (await this.decodeFrame(codec, cache)).slice(low, high);
  }

  /** Returns the whole block in a single frame, verified, from the cache if it is there. */
  private async decodeFrame(codec: "zstd" | "lz4", cache: BlockCache | null): Promise<Uint8Array> {
    const cached = cache?.get(0);
    if (cached !== undefined) {
      return cached;
    }
    const data = await this.decodeStored(codec);
    this.check(crc32c(data));
    cache?.put(0, data);
    return data;
  }

  private async decodeStored(codec: "zstd" | "lz4"): Promise<Uint8Array> {
    const { name, offset, storedBytes, sizeBytes } = this.entry;
    const stored = await this.file.readRange(offset, offset + storedBytes);
    return decompress(stored, codec, sizeBytes, `block '${name}'`);
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

function checkRows(what: string, rows: number, start: number, stop: number): void {
  if (!(Number.isInteger(start) && Number.isInteger(stop) && 0 <= start && start <= stop && stop <= rows)) {
    throw new BadInputError(`rows ${start}…${stop} are not within the ${rows} of ${what}`);
  }
}

function hex(word: number): string {
  return word.toString(16).padStart(8, "0");
}
