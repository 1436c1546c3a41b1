/**
 * Chunks of one episode, read as one episode: the rows of each block are concatenated.
 *
 * A block without rows, such as a video, is read chunk by chunk. Implements "Joined chunks" of the specification.
 */

import { sibling } from "#platform";

import type { BlockType } from "./block-type.js";
import { findDisagreement, layoutOf, type ChunkLayout } from "./chunk-layout.js";
import { loadChunkManifest, validateChunkContinuity, type ChunkManifest } from "./chunked.js";
import { joinArrays, type NdArray } from "./dtypes.js";
import { BadInputError, CorruptError, NotFoundError, ObjectNotFoundError, UnsupportedError } from "./errors.js";
import { openHttp, type HttpOptions } from "./http.js";
import { merged } from "./json-read.js";
import type { EpisodeInfo } from "./metadata.js";
import { isEncoded } from "./model.js";
import { openWShard, type BlockReader, type OpenOptions, type WShardFile } from "./reader.js";
import type { Source } from "./source.js";

/** Returns the source of a chunk, from its file name in the manifest. */
export type ChunkOpener = (uri: string) => Source | Promise<Source>;

/** Blocks that describe their own chunk only: residuals restart with each chunk. */
const PER_CHUNK = /^(?:meta|residual)\//;

export interface JoinOptions extends OpenOptions {
  /** Opens the chunks of a manifest; needed if the manifest is no path and no address. */
  readonly open?: ChunkOpener;
}

/** Opens the chunks of a manifest, without hashing them. */
export async function openJoined(where: Source, options: JoinOptions = {}): Promise<JoinedFile> {
  const manifest = await loadChunkManifest(where, options.http);
  const open = options.open ?? openerBeside(where, options.http);
  validateChunkContinuity(manifest);
  const files: WShardFile[] = [];
  try {
    for (const { uri, length } of manifest.chunks) {
      const file = await openChunk(manifest, uri, open, options);
      files.push(file);
      const info = await file.info();
      if (info?.id !== manifest.episodeId || info.length !== length) {
        throw new CorruptError(`${uri} does not hold ${length} steps of '${manifest.episodeId}'`);
      }
    }
    return await joinFiles(files);
  } catch (error) {
    await Promise.all(files.map((file) => file.close()));
    throw error;
  }
}

/** Returns a function that finds chunks beside their manifest. */
export function openerBeside(where: Source, http?: HttpOptions): ChunkOpener {
  return (uri) => {
    if (typeof where === "string" || where instanceof URL) {
      const beside = sibling(where, uri);
      return http === undefined ? beside : openHttp(beside, http);
    }
    throw new UnsupportedError("the chunks of this manifest have no path", {
      hint: "Pass a function that opens them.",
    });
  };
}

async function openChunk(
  manifest: ChunkManifest,
  uri: string,
  open: ChunkOpener,
  options: OpenOptions,
): Promise<WShardFile> {
  try {
    return await openWShard(await open(uri), options);
  } catch (cause) {
    throw cause instanceof ObjectNotFoundError
      ? new CorruptError(`the chunk ${uri} of '${manifest.episodeId}' is missing`, { cause })
      : cause;
  }
}

/** Reads open chunks, in order, as one episode. `CorruptError` if they differ in their environment, rate or channels. */
export async function joinFiles(files: readonly WShardFile[]): Promise<JoinedFile> {
  if (files.length === 0) {
    throw new BadInputError("there are no chunks to join");
  }
  const infos: EpisodeInfo[] = [];
  let first: ChunkLayout | undefined;
  for (const [number, file] of files.entries()) {
    const info = await file.info();
    if (info === null) {
      throw new CorruptError("a chunk has no block 'meta/episode'");
    }
    infos.push(info);
    const layout = fileLayout(file, info);
    first ??= layout;
    const problem = findDisagreement(first, layout, false);
    if (problem !== null) {
      throw new CorruptError(`chunk ${number} of the episode '${infos[0]!.id}' ${problem}`);
    }
  }
  const whole = {
    ...infos[0]!,
    length: infos.reduce((sum, info) => sum + info.length, 0),
    chunk: null,
    metadata: merged(...infos.map((info) => info.metadata)),
  };
  const blocks: string[] = [];
  for (const name of files[0]!.blocks) {
    if (await hasRows(files[0]!, name, whole)) {
      blocks.push(name);
    }
  }
  return new JoinedFile(files, whole, blocks);
}

export function fileLayout(file: WShardFile, info: EpisodeInfo): ChunkLayout {
  return layoutOf(info, new Map(file.blocks.map((name) => [name, file.block(name).entry.sizeBytes])));
}

/** Returns whether a block has rows that continue in the next chunk. */
async function hasRows(file: WShardFile, name: string, info: EpisodeInfo): Promise<boolean> {
  const spec = info.channels.get(name) ?? info.lanes.get(name);
  if (PER_CHUNK.test(name) || (spec !== undefined && isEncoded(spec.attributes))) {
    return false;
  }
  return (await file.block(name).blockType()).isDeclared;
}

/** The open chunks of one episode as one file. */
export class JoinedFile {
  constructor(
    readonly parts: readonly WShardFile[],
    private readonly whole: EpisodeInfo,
    /** The names of the blocks that can be read over all chunks. */
    readonly blocks: readonly string[],
  ) {}

  /** The metadata of the whole episode. Later chunks override the `metadata` of earlier ones. */
  async info(): Promise<EpisodeInfo> {
    return this.whole;
  }

  has(name: string): boolean {
    return this.blocks.includes(name);
  }

  /** Returns a reader over all chunks; `UnsupportedError` for a block that is encoded separately in each chunk. */
  block(name: string): JoinedBlock {
    if (!this.has(name)) {
      if (this.parts[0]!.has(name)) {
        const hint = "Read it from the chunks in `parts`.";
        throw new UnsupportedError(`block '${name}' has no rows that go on from chunk to chunk`, { hint });
      }
      throw new NotFoundError(`there is no block '${name}'`, {
        hint: `Blocks: ${this.blocks.slice(0, 20).join(", ")}.`,
      });
    }
    const missing = this.parts.findIndex((file) => !file.has(name));
    if (missing >= 0) {
      throw new CorruptError(`chunk ${missing} of the episode '${this.whole.id}' has no block '${name}'`);
    }
    return new JoinedBlock(
      name,
      this.parts.map((file) => file.block(name)),
    );
  }

  async close(): Promise<void> {
    await Promise.all(this.parts.map((file) => file.close()));
  }
}

/** One block over all chunks. Rows are counted over the whole episode. */
export class JoinedBlock {
  private found: Promise<readonly [BlockType, readonly number[]]> | undefined;

  constructor(
    readonly name: string,
    readonly parts: readonly BlockReader[],
  ) {}

  /** Element type, step shape and number of rows over all chunks. */
  async blockType(): Promise<BlockType> {
    return (await this.rows())[0];
  }

  /** Reads and verifies the whole block. */
  async read(): Promise<NdArray> {
    await this.rows();
    const arrays: NdArray[] = [];
    for (const part of this.parts) {
      arrays.push(await part.read());
    }
    return joinArrays(arrays);
  }

  /** Returns rows `start` up to `stop`, like `BlockReader.window`. */
  async window(start: number, stop: number): Promise<NdArray> {
    const [{ rows }, starts] = await this.rows();
    if (!(Number.isInteger(start) && Number.isInteger(stop) && 0 <= start && start <= stop && stop <= rows)) {
      throw new BadInputError(`rows ${start}…${stop} are not within the ${rows} of '${this.name}'`);
    }
    const arrays: NdArray[] = [];
    for (const [number, part] of this.parts.entries()) {
      const [first, after] = [starts[number]!, starts[number + 1]!];
      const [low, high] = [Math.max(start, first), Math.min(stop, after)];
      if (low < high) {
        arrays.push(await part.window(low - first, high - first));
      }
    }
    return arrays.length === 0 ? this.parts[0]!.window(0, 0) : joinArrays(arrays);
  }

  /** Returns the joined type, and the first row of each part followed by the number of rows. */
  private rows(): Promise<readonly [BlockType, readonly number[]]> {
    this.found ??= this.findRows().catch((error: unknown) => {
      this.found = undefined;
      throw error;
    });
    return this.found;
  }

  private async findRows(): Promise<readonly [BlockType, readonly number[]]> {
    const types = await Promise.all(this.parts.map((part) => part.blockType()));
    const first = types[0]!;
    const shown = ({ dtype, shape }: BlockType): string => `${dtype}[${shape.join(", ")}]`;
    const odd = types.findIndex((found) => shown(found) !== shown(first));
    if (odd >= 0) {
      throw new CorruptError(
        `block '${this.name}' is ${shown(types[odd]!)} in chunk ${odd}, but ${shown(first)} in the first`,
      );
    }
    const starts = [0];
    for (const { rows } of types) {
      starts.push(starts.at(-1)! + rows);
    }
    return [{ ...first, rows: starts.at(-1)! }, starts];
  }
}
