/**
 * Parsing of the metadata blocks, in all their forms, into one value.
 *
 * Lengths, shapes and counts are bounded before they are multiplied. Implements "Metadata" of the specification.
 */

import { dtypeBytes, isDType, product, type DType } from "./dtypes.js";
import { CorruptError, UnsupportedError } from "./errors.js";
import {
  decodeObject,
  isCount,
  isList,
  isObject,
  member,
  merged,
  without,
  type Json,
  type JsonObject,
} from "./json-read.js";
import { show } from "./json-write.js";
import { MAX_CHANNELS, MAX_DIMENSION, MAX_DIMENSIONS, MAX_STEPS } from "./limits.js";
import type { ChunkPlace, Timebase } from "./model.js";

export const META_WSHARD = "meta/wshard";
export const META_EPISODE = "meta/episode";
export const META_CHANNELS = "meta/channels";
export const META_BLOCKS: readonly string[] = [META_WSHARD, META_EPISODE, META_CHANNELS];

export const KNOWN_MEMBERS: ReadonlySet<string> = new Set([
  "episode_id",
  "id",
  "env_id",
  "length_T",
  "length_t",
  "timebase",
  "chunk_index",
  "total_chunks",
  "timestep_range",
  "metadata",
]);
export const MAX_DT_NS = 2n ** 63n - 1n;

const VERSIONS: readonly Json[] = [1, "1", "0.1"];
const ROUNDING = 1e-6;

/** The declaration of one block: its element type and the shape of one step. */
export interface ChannelSpec {
  readonly id: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly block: string;
  readonly attributes: JsonObject;
}

/** The content of the metadata blocks. `channels` and `lanes` are keyed by block name, in file order. */
export interface EpisodeInfo {
  readonly id: string;
  readonly envId: string;
  readonly length: number;
  readonly timebase: Timebase;
  readonly chunk: ChunkPlace | null;
  readonly metadata: JsonObject;
  readonly attributes: JsonObject;
  readonly channels: ReadonlyMap<string, ChannelSpec>;
  readonly lanes: ReadonlyMap<string, ChannelSpec>;
}

export function stepBytes(spec: { readonly dtype: DType; readonly shape: readonly number[] }): number {
  return product(spec.shape) * dtypeBytes(spec.dtype);
}

/** Parses `meta/episode`, with `meta/wshard` and `meta/channels` if they exist. */
export function parseInfo(blocks: ReadonlyMap<string, Uint8Array>): EpisodeInfo {
  const raw = blocks.get(META_EPISODE);
  if (raw === undefined) {
    throw new CorruptError(`there is no block '${META_EPISODE}'`);
  }
  const episode = decodeObject(raw, META_EPISODE);
  const shardBytes = blocks.get(META_WSHARD);
  const shard = shardBytes === undefined ? {} : decodeObject(shardBytes, META_WSHARD);
  checkVersion(shard);
  const lengthKey = Object.hasOwn(episode, "length_T") ? "length_T" : "length_t";
  if (!isCount(episode, lengthKey, MAX_STEPS)) {
    throw new CorruptError(`${META_EPISODE} has the length ${show(member(episode, lengthKey))}`);
  }
  const length = Number(episode[lengthKey]);
  const id = member(episode, Object.hasOwn(episode, "episode_id") ? "episode_id" : "id");
  const envId = Object.hasOwn(episode, "env_id") ? member(episode, "env_id") : "";
  const metadata = Object.hasOwn(episode, "metadata") ? member(episode, "metadata") : {};
  if (typeof id !== "string" || typeof envId !== "string" || !isObject(metadata)) {
    throw new CorruptError(`${META_EPISODE} has no proper episode_id, env_id or metadata`);
  }
  const channels = parseChannels(blocks.get(META_CHANNELS));
  const timebase = parseTimebase(member(episode, "timebase"), member(shard, "timebase"));
  const chunk = parsePlace(episode, length);
  const attributes = without(episode, KNOWN_MEMBERS);
  return { id, envId, length, timebase, chunk, metadata, attributes, ...channels };
}

function checkVersion(shard: JsonObject): void {
  const key = ["version", "wshard_version"].find((name) => Object.hasOwn(shard, name));
  const version = key === undefined ? 1 : (shard[key] as Json);
  if (!VERSIONS.includes(version)) {
    throw new UnsupportedError(`${META_WSHARD} has the version ${show(version)}`);
  }
  if (Object.hasOwn(shard, "endianness") && shard["endianness"] !== "little") {
    throw new UnsupportedError(`${META_WSHARD} has the endianness ${show(shard["endianness"])}`);
  }
}

/** Prefers `meta/episode`; takes the rate of `meta/wshard` if it agrees with the rounded `dt_ns`. */
function parseTimebase(ofEpisode: Json | undefined, ofShard: Json | undefined): Timebase {
  const mine = oneTimebase(ofEpisode, META_EPISODE);
  const other = oneTimebase(ofShard, META_WSHARD);
  if (mine === null) {
    return other ?? { type: "ticks", tickHz: null, dtNs: null };
  }
  const exact = other !== null && mine.type === "ticks" && other.type === "ticks" ? other.tickHz : null;
  if (mine.tickHz === null && exact !== null) {
    const agrees = mine.dtNs === null || Math.abs((Number(mine.dtNs) * exact) / 1e9 - 1) < ROUNDING;
    return { ...mine, tickHz: agrees ? exact : null };
  }
  return mine;
}

type ReadTimebase = Required<{ [K in keyof Timebase]: Exclude<Timebase[K], undefined> }>;

function oneTimebase(value: Json | undefined, what: string): ReadTimebase | null {
  if (value === undefined || value === null) {
    return null;
  }
  const refusal = new CorruptError(`${what} has the timebase ${show(value)}`);
  if (!isObject(value)) {
    throw refusal;
  }
  const type = Object.hasOwn(value, "type") ? value["type"] : "ticks";
  if (type !== "ticks" && type !== "timestamps_ns") {
    throw refusal;
  }
  const rate = member(value, "tick_hz") ?? null;
  const step = member(value, "dt_ns") ?? null;
  if (rate !== null && !((typeof rate === "number" || typeof rate === "bigint") && rate >= 0)) {
    throw refusal;
  }
  if (step !== null && !isCount(value, "dt_ns", MAX_DT_NS)) {
    throw refusal;
  }
  // Some writers put 0 for an unknown rate.
  return { type, tickHz: rate ? Number(rate) : null, dtNs: (step as number | bigint | null) || null };
}

function parsePlace(episode: JsonObject, length: number): ChunkPlace | null {
  const count = (key: string): number | null => {
    if ((member(episode, key) ?? null) === null) {
      return null;
    }
    if (!isCount(episode, key, MAX_STEPS)) {
      throw new CorruptError(`${META_EPISODE} has ${key} = ${show(member(episode, key))}`);
    }
    return Number(episode[key]);
  };
  const [index, total] = [count("chunk_index"), count("total_chunks")];
  const span = member(episode, "timestep_range") ?? null;
  let firstStep = 0;
  if (span !== null) {
    if (!isList(span) || span.length !== 2 || ![0, 1].every((at) => isCount(span, at, 2 * MAX_STEPS))) {
      throw new CorruptError(`${META_EPISODE} has the timestep_range ${show(span)}`);
    }
    firstStep = Number(span[0]);
    const steps = Number(span[1]) - firstStep;
    // The end is exclusive in old complete episodes, and inclusive in chunks.
    if (steps !== length && steps !== length - 1) {
      throw new CorruptError(`${META_EPISODE} has ${length} steps in the timestep_range ${show(span)}`);
    }
  }
  return index === null && total === null && firstStep === 0 ? null : { index, total, firstStep };
}

function parseChannels(data: Uint8Array | undefined): Pick<EpisodeInfo, "channels" | "lanes"> {
  if (data === undefined) {
    return { channels: new Map(), lanes: new Map() };
  }
  const document = decodeObject(data, META_CHANNELS);
  // In the older form, block names are the keys.
  const listed = Object.hasOwn(document, "channels")
    ? document["channels"]
    : Object.entries(document)
        .filter(([name]) => name !== "lanes")
        .map(([name, value]) => merged({ signal_block: name }, declaration(value)));
  const lanes = Object.hasOwn(document, "lanes") ? document["lanes"] : [];
  return { channels: byBlock(listed), lanes: byBlock(lanes) };
}

function byBlock(listed: Json | undefined): ReadonlyMap<string, ChannelSpec> {
  if (!isList(listed) || listed.length > MAX_CHANNELS) {
    throw new CorruptError(`${META_CHANNELS} does not hold a list of channels`);
  }
  const specs = listed.map((item) => parseChannel(declaration(item)));
  const out = new Map(specs.map((spec) => [spec.block, spec]));
  if (out.size !== specs.length) {
    throw new CorruptError(`${META_CHANNELS} describes one block twice`);
  }
  return out;
}

function declaration(value: Json): JsonObject {
  if (!isObject(value)) {
    throw new CorruptError(`${META_CHANNELS} has ${show(value)} instead of the object of a channel`);
  }
  return value;
}

const DECLARED: ReadonlySet<string> = new Set(["id", "dtype", "shape", "signal_block"]);

/** Parses one declaration of `meta/channels`. */
export function parseChannel(item: JsonObject): ChannelSpec {
  const named = member(item, "signal_block") ?? null;
  const given = member(item, "id") ?? null;
  const id = given === null && typeof named === "string" ? named.slice(named.indexOf("/") + 1) || named : given;
  const block = named === null && typeof id === "string" ? `signal/${id}` : named;
  if (typeof id !== "string" || typeof block !== "string" || !id || !block) {
    throw new CorruptError(
      `${META_CHANNELS} has a channel without a proper id: ${show(given)}, ${show(named)}`,
    );
  }
  const dtype = member(item, "dtype");
  if (typeof dtype !== "string" || !isDType(dtype)) {
    throw new UnsupportedError(`channel '${id}' has the dtype ${show(dtype)}, which the format does not have`);
  }
  const shape = Object.hasOwn(item, "shape") ? item["shape"] : [];
  if (!isList(shape) || shape.length > MAX_DIMENSIONS || !shape.every((_, at) => isCount(shape, at, MAX_DIMENSION))) {
    throw new CorruptError(`channel '${id}' has the shape ${show(shape)}`);
  }
  return { id, dtype, shape: shape.map(Number), block, attributes: without(item, DECLARED) };
}
