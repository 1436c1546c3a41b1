/**
 * Encoding of the metadata blocks: the newest form, or the old bytes if their content did not change.
 *
 * A loaded episode that was not changed keeps its metadata byte for byte, and so its identity. Implements "Metadata"
 * of the specification.
 */

import { BadInputError, WShardError } from "./errors.js";
import { decodeObject, markFraction, merged, without, type Json, type JsonObject } from "./json-read.js";
import { encodeJson, sameJson } from "./json-write.js";
import { MAX_STEPS } from "./limits.js";
import { defaultLane } from "./block-type.js";
import {
  KNOWN_MEMBERS,
  MAX_DT_NS,
  META_CHANNELS,
  META_EPISODE,
  META_WSHARD,
  parseChannel,
  parseInfo,
  stepBytes,
  type ChannelSpec,
  type EpisodeInfo,
} from "./metadata.js";
import {
  isEncoded,
  lanesOf,
  stepShapeOf,
  type Channel,
  type ChunkPlace,
  type Episode,
  type Timebase,
} from "./model.js";

const NEWEST: JsonObject = { endianness: "little", format: "W-SHARD", residual_edges: "pad", version: "0.1" };

/** Names of blocks that are channels. */
export const LANES = /^(signal|action|omen|uncert|residual)\/./s;

type Specs = ReadonlyMap<string, ChannelSpec>;

/** Encodes the three metadata blocks, and refuses content that no reader accepts. */
export function encodeMetadata(episode: Episode): ReadonlyMap<string, Uint8Array> {
  const verbatim = episode.origin?.verbatim ?? new Map<string, Uint8Array>();
  const before = verbatim.has(META_EPISODE) ? parseInfo(verbatim) : null;
  const out = new Map<string, Uint8Array>();
  const keep = (name: string): void => {
    const old = verbatim.get(name);
    if (old !== undefined) {
      out.set(name, old);
    }
  };
  if (before !== null && saysTheSame(before, episode)) {
    [META_WSHARD, META_EPISODE].forEach(keep);
  } else {
    out.set(META_WSHARD, encodeJson(NEWEST));
    out.set(META_EPISODE, encodeJson(episodeDocument(episode)));
  }
  try {
    const [channels, lanes] = collectSpecs(episode, before);
    if (before !== null && areAlike(before.channels, channels) && areAlike(before.lanes, lanes)) {
      keep(META_CHANNELS);
    } else {
      out.set(META_CHANNELS, encodeJson(channelsDocument(channels, lanes, verbatim.get(META_CHANNELS))));
    }
    parseInfo(out);
  } catch (cause) {
    if (cause instanceof WShardError && !(cause instanceof BadInputError)) {
      throw new BadInputError(`the episode cannot be described: ${cause.message}`, { cause });
    }
    throw cause;
  }
  return out;
}

/** Encodes the three blocks of a new episode, from its `meta/episode` document. */
export function freshMetadata(
  document: JsonObject,
  channels: readonly ChannelSpec[],
  lanes: readonly ChannelSpec[] = [],
): ReadonlyMap<string, Uint8Array> {
  const byBlock = (specs: readonly ChannelSpec[]): Specs => new Map(specs.map((spec) => [spec.block, spec]));
  const info = { channels: byBlock(channels), length: Number(document["length_T"]) };
  const needed = byBlock(lanes.filter((spec) => mustDeclare(spec.block, spec, info)));
  return new Map([
    [META_WSHARD, encodeJson(NEWEST)],
    [META_EPISODE, encodeJson(document)],
    [META_CHANNELS, encodeJson(channelsDocument(info.channels, needed, undefined))],
  ]);
}

/** Returns `meta/episode` in its newest form. */
export function episodeDocument(episode: Episode): JsonObject {
  if (!(Number.isInteger(episode.length) && episode.length >= 0 && episode.length <= MAX_STEPS)) {
    throw new BadInputError(`the episode has ${episode.length} steps`);
  }
  const taken = Object.keys(episode.attributes).filter((key) => KNOWN_MEMBERS.has(key));
  if (taken.length > 0) {
    throw new BadInputError(`attributes cannot hold ${taken.sort().join(", ")}, which have fields of their own`);
  }
  return merged(
    episode.attributes,
    {
      episode_id: episode.id,
      env_id: episode.envId,
      length_T: episode.length,
      timebase: timebaseDocument(episode.timebase),
    },
    placeDocument(episode.chunk, episode.length),
    Object.keys(episode.metadata).length > 0 ? { metadata: episode.metadata } : {},
  );
}

function saysTheSame(before: EpisodeInfo, episode: Episode): boolean {
  const isNamedAlike = before.id === episode.id && before.envId === episode.envId && before.length === episode.length;
  const [old, now] = [before.timebase, episode.timebase];
  const isTimedAlike = old.type === now.type && old.tickHz === (now.tickHz ?? null) && old.dtNs === (now.dtNs ?? null);
  const [one, two] = [before.chunk, episode.chunk];
  const isPlacedAlike = one?.index === two?.index && one?.total === two?.total && one?.firstStep === two?.firstStep;
  return (
    isNamedAlike &&
    isTimedAlike &&
    isPlacedAlike &&
    sameJson(before.metadata, episode.metadata) &&
    sameJson(before.attributes, episode.attributes)
  );
}

function timebaseDocument(timebase: Timebase): JsonObject {
  const { type, tickHz: rate = null, dtNs: given = null } = timebase;
  if (type === "timestamps_ns") {
    return { type };
  }
  if (type !== "ticks") {
    throw new BadInputError(`the timebase '${String(type)}' is neither ticks nor timestamps_ns`);
  }
  if ((rate !== null && !(rate > 0 && rate < Infinity)) || (given !== null && !(given > 0))) {
    throw new BadInputError(`the timebase has a rate that is not positive: ${rate} Hz, ${String(given)} ns`);
  }
  const document: Record<string, Json> = { type };
  if (rate !== null) {
    document["tick_hz"] = rate;
    markFraction(document, "tick_hz");
  }
  const step = given ?? (rate === null ? 0 : roundToEven(1e9 / rate));
  if (step > MAX_DT_NS || (typeof step === "number" && !Number.isInteger(step))) {
    throw new BadInputError(`the timebase has steps of ${step} ns`);
  }
  if (step) {
    document["dt_ns"] = BigInt(step);
  }
  return document;
}

/** Rounds like Python: ties go to the even neighbour. */
function roundToEven(value: number): number {
  const near = Math.round(value);
  return near - value === 0.5 && near % 2 === 1 ? near - 1 : near;
}

function placeDocument(place: ChunkPlace | null, length: number): JsonObject {
  if (place === null) {
    return {};
  }
  return {
    ...(place.index === null ? {} : { chunk_index: place.index }),
    ...(place.total === null ? {} : { total_chunks: place.total }),
    ...(length === 0 ? {} : { timestep_range: [place.firstStep, place.firstStep + length - 1] }),
  };
}

/** Returns declarations of channels in their old order, and of lanes whose type does not follow from their name. */
function collectSpecs(episode: Episode, before: EpisodeInfo | null): [channels: Specs, lanes: Specs] {
  const oldChannels: Specs = before?.channels ?? new Map();
  const oldLanes: Specs = before?.lanes ?? new Map();
  // If a block is declared as both, the channel takes precedence.
  const old: Specs = new Map([...oldChannels, ...[...oldLanes].filter(([name]) => !oldChannels.has(name))]);
  const found = strays(episode, old);
  for (const [name, item] of lanesOf(episode)) {
    if (item.isDeclared) {
      found.set(name, specOf(name, item, old));
    }
  }
  const names = [...old.keys()].filter((name) => found.has(name));
  names.push(...[...found.keys()].filter((name) => !old.has(name)));
  const isChannel = (name: string): boolean =>
    oldChannels.has(name) || (!oldLanes.has(name) && /^(signal|action)\//.test(name));
  const channels = new Map(names.filter(isChannel).map((name) => [name, found.get(name)!]));
  const lanes = new Map<string, ChannelSpec>();
  for (const [name, spec] of oldLanes) {
    if (found.has(name)) {
      lanes.set(name, channels.has(name) ? spec : found.get(name)!);
    }
  }
  for (const name of names) {
    if (channels.has(name) || lanes.has(name) || name.startsWith("residual/")) {
      continue;
    }
    const spec = found.get(name)!;
    if (mustDeclare(name, spec, { channels, length: episode.length })) {
      lanes.set(name, spec);
    }
  }
  return [channels, lanes];
}

/** Returns whether the type or the id of a prediction does not follow from its name. */
function mustDeclare(name: string, spec: ChannelSpec, info: Pick<EpisodeInfo, "channels" | "length">): boolean {
  const lane = defaultLane(name, stepBytes(spec) * info.length, info);
  const isDerived = lane?.dtype === spec.dtype && sameJson(lane.shape, spec.shape);
  return !isDerived || Object.keys(spec.attributes).length > 0 || spec.id !== name.slice(name.indexOf("/") + 1);
}

/** Returns declarations of blocks that are no channel of the episode, such as blocks absent from the file. */
function strays(episode: Episode, old: Specs): Map<string, ChannelSpec> {
  const names = new Set(episode.origin?.layout.map(([name]) => name));
  return new Map([...old].filter(([name]) => !names.has(name) || !LANES.test(name)));
}

function specOf(name: string, item: Channel, old: Specs): ChannelSpec {
  const { id, dtype, attributes } = item;
  if (isEncoded(attributes)) {
    // The declaration describes decoded frames, which the stored bytes do not show.
    const known = old.get(name);
    return known === undefined ? { id, dtype, shape: [], block: name, attributes } : { ...known, attributes };
  }
  return { id, dtype, shape: stepShapeOf(item), block: name, attributes };
}

function areAlike(before: Specs, now: Specs): boolean {
  const names = [...now.keys()];
  return (
    sameJson([...before.keys()], names) &&
    names.every((name) => {
      const [one, two] = [before.get(name)!, now.get(name)!];
      return sameJson(keyOf(one), keyOf(two)) && sameJson(one.attributes, two.attributes);
    })
  );
}

function keyOf({ id, dtype, shape, block, attributes }: ChannelSpec): Json {
  return isEncoded(attributes) ? [id, null, [], block] : [id, dtype, shape, block];
}

function channelsDocument(channels: Specs, lanes: Specs, old: Uint8Array | undefined): JsonObject {
  const before = old === undefined ? {} : decodeObject(old, META_CHANNELS);
  // Unknown members exist beside the list only; in the older form every member is a channel.
  const rest = Object.hasOwn(before, "channels") ? without(before, new Set(["channels", "lanes"])) : {};
  return merged(
    rest,
    { channels: [...channels.values()].map(declarationOf) },
    lanes.size > 0 ? { lanes: [...lanes.values()].map(declarationOf) } : {},
  );
}

function declarationOf({ attributes, id, dtype, shape, block }: ChannelSpec): JsonObject {
  const item = merged(attributes, { id, dtype, shape, signal_block: block });
  // Refuse a declaration that no reader would accept.
  parseChannel(item);
  return item;
}
