/**
 * Saving of an episode: all blocks, with those of the original file in their old order.
 * Implements "Rewriting" of the specification.
 */

import { stageFile } from "#platform";

import { parseCompression, PLAIN, type Compression, type CompressionName } from "./codecs.js";
import { JSON_CONTENT, ROLE_EPISODE } from "./container.js";
import { findBlockType, TICKS } from "./block-type.js";
import { META_BLOCKS, parseInfo } from "./metadata.js";
import { encodeMetadata, LANES } from "./metadata-writer.js";
import { encodeArray, type NdArray } from "./dtypes.js";
import { BadInputError, CorruptError } from "./errors.js";
import { decodeObject, type JsonObject } from "./json-read.js";
import { encodeJson, sameJson } from "./json-write.js";
import { SERIES } from "./load.js";
import { checkEpisode, completeEpisode, lanesOf, type Channel, type Episode, type EpisodeInit } from "./model.js";
import { checkProvenance, META_IDENTITY, META_PROVENANCE } from "./identity.js";
import { MemorySink, planBytes, writeContainer, type BlockPlan, type Sink, type Written } from "./container-writer.js";

export interface SaveOptions {
  /** `"none"`, `"zstd"`, `"lz4"`, or a pair of name and level. */
  readonly compression?: CompressionName;
  /** Overrides `compression` by block name, for example `{ "signal/rgb": ["zstd", 19] }`. */
  readonly perBlock?: Readonly<Record<string, CompressionName>>;
  readonly alignment?: 0 | 16 | 32 | 64;
  /** Splits zstd blocks into chunks that windows read alone. Use 0 for files to be exchanged. */
  readonly timeChunkSteps?: number;
  /** The default seals an episode that was loaded from a sealed file. */
  readonly seal?: boolean;
}

export interface Encoded {
  readonly bytes: Uint8Array;
  /** Only if the file is sealed. */
  readonly identity: string | null;
}

/** Encodes the file. With the defaults, every known reader accepts it. */
export async function encodeWShard(episode: EpisodeInit, options: SaveOptions = {}): Promise<Encoded> {
  const sink = new MemorySink();
  const { totalBytes, identity } = await write(sink, episode, options);
  return { bytes: sink.bytes(totalBytes), identity };
}

/**
 * Writes the episode in Node, atomically and durably. Returns the identity if the file is sealed.
 */
export async function saveWShard(
  episode: EpisodeInit,
  path: string | URL,
  options: SaveOptions = {},
): Promise<string | null> {
  const file = await stageFile(path);
  try {
    const { totalBytes, identity } = await write(file, episode, options);
    await file.commit(totalBytes);
    return identity;
  } catch (error) {
    await file.abandon();
    throw error;
  }
}

async function write(sink: Sink, init: EpisodeInit, options: SaveOptions): Promise<Written> {
  const episode = completeEpisode(init);
  checkEpisode(episode);
  const { alignment = 64, timeChunkSteps = 0, seal = episode.origin?.isSealed ?? false } = options;
  const how = parseCompression(options.compression ?? "none");
  const special = new Map(
    Object.entries(options.perBlock ?? {}).map(([name, value]) => [name, parseCompression(value)]),
  );
  if (!Number.isInteger(timeChunkSteps) || timeChunkSteps < 0) {
    throw new BadInputError(`timeChunkSteps ${timeChunkSteps} is not valid`);
  }
  const plans = makePlans(episode);
  checkSizes(plans, episode);
  const unknown = [...special.keys()].filter((name) => !plans.some((plan) => plan.name === name));
  if (unknown.length > 0) {
    throw new BadInputError(`perBlock names blocks that the episode does not have: ${unknown.sort().join(", ")}`);
  }
  const lanes = lanesOf(episode);
  const chosen = plans.map((plan) => {
    const usual = plan.name.startsWith("meta/") ? PLAIN : how;
    const compression = special.get(plan.name) ?? usual;
    return { ...plan, compression, chunkBytes: chunkBytesOf(lanes.get(plan.name), timeChunkSteps, compression) };
  });
  return writeContainer(sink, chosen, {
    role: ROLE_EPISODE,
    alignment,
    defaultCodec: how.codec,
    isSealed: seal,
  });
}

function chunkBytesOf(item: Channel | undefined, steps: number, how: Compression): number {
  if (item === undefined || steps === 0 || how.codec !== "zstd" || item.data.length === 0) {
    return 0;
  }
  return steps * (item.data.byteLength / item.shape[0]!);
}

/** Returns all blocks in order: those of the original file, then new ones, provenance last. */
function makePlans(episode: Episode): BlockPlan[] {
  const blocks = new Map<string, BlockPlan>();
  const add = (name: string, data: Uint8Array, contentType = 0, tags = 0): void => {
    blocks.set(name, planBytes(name, data, contentType, tags));
  };
  const verbatim = episode.origin?.verbatim ?? new Map<string, Uint8Array>();
  for (const [name, data] of encodeMetadata(episode)) {
    add(name, data, JSON_CONTENT);
  }
  for (const [name, item] of lanesOf(episode)) {
    add(name, storedBytes(name, item, verbatim));
  }
  for (const [name, [field, dtype]] of Object.entries(SERIES)) {
    const data = episode[field];
    if (data !== null) {
      add(name, storedBytes(name, { dtype, data, shape: [data.length] } as NdArray, verbatim));
    }
  }
  for (const [name, { data, contentType = 0, tags = 0 }] of episode.extra) {
    if (blocks.has(name) || META_BLOCKS.includes(name) || name === META_IDENTITY || name === META_PROVENANCE) {
      throw new BadInputError(`the block '${name}' cannot be in extra; it has a field of its own`);
    }
    if (![contentType, tags].every((word) => Number.isInteger(word) && word >= 0 && word < 2 ** 16)) {
      throw new BadInputError(`block '${name}' has a content type or tags beyond 16 bits`);
    }
    add(name, data, contentType, tags);
  }
  if (episode.provenance !== null) {
    add(META_PROVENANCE, provenanceBytes(episode.provenance, verbatim), JSON_CONTENT);
  }
  return inOrder(blocks, episode);
}

/** Refuses a block that `loadWShard` would reject, because its size contradicts its type. */
function checkSizes(plans: readonly BlockPlan[], episode: Episode): void {
  const info = parseInfo(encodeMetadata(episode));
  const before = new Set(episode.origin?.layout.map(([name]) => name));
  for (const { name, sizeBytes } of plans) {
    // Loading does not interpret ticks, so a file that has them keeps them.
    const isRead = Object.hasOwn(SERIES, name) || LANES.test(name) || (name === TICKS && !before.has(name));
    if (!isRead) {
      continue;
    }
    try {
      findBlockType(name, sizeBytes, info);
    } catch (cause) {
      if (cause instanceof CorruptError) {
        throw new BadInputError(`no reader would accept the episode: ${cause.message}`, { cause });
      }
      throw cause;
    }
  }
}

function inOrder(blocks: ReadonlyMap<string, BlockPlan>, episode: Episode): BlockPlan[] {
  const layout = episode.origin?.layout ?? [];
  const notes = new Map(layout.map(([name, contentType, tags]) => [name, { contentType, tags }]));
  const names = [...notes.keys()].filter((name) => blocks.has(name));
  names.push(...[...blocks.keys()].filter((name) => !notes.has(name)));
  const isLast = (name: string): boolean => name === META_PROVENANCE;
  return [...names.filter((name) => !isLast(name)), ...names.filter(isLast)].map((name) => {
    const plan = blocks.get(name)!;
    return episode.extra.has(name) ? plan : { ...plan, ...notes.get(name) };
  });
}

function storedBytes(name: string, array: NdArray, verbatim: ReadonlyMap<string, Uint8Array>): Uint8Array {
  const data = encodeArray(array, `block '${name}'`);
  const old = verbatim.get(name);
  const isSame =
    array.dtype === "bool" && old?.length === data.length && old.every((byte, at) => (byte !== 0) === (data[at] === 1));
  return isSame ? old : data;
}

function provenanceBytes(provenance: JsonObject, verbatim: ReadonlyMap<string, Uint8Array>): Uint8Array {
  const old = verbatim.get(META_PROVENANCE);
  if (old !== undefined && sameJson(decodeObject(old, META_PROVENANCE), provenance)) {
    return old;
  }
  checkProvenance(provenance);
  return encodeJson(provenance);
}
