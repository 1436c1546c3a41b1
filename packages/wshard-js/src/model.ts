/**
 * What an episode is, in memory. Values only: no files, no bytes of the format.
 *
 * An `Episode` that was loaded remembers where it came from (`origin`), so that saving it again changes
 * nothing that was not changed on purpose. Change one with a spread: `{ ...episode, envId: "Lift-v2" }`.
 */

import { dtypeOf, product, type DType, type NdArray, type TypedArray } from "./dtypes.js";
import { BadInputError } from "./errors.js";
import type { JsonObject } from "./json-read.js";

/** The time axis: steps at a fixed rate (`ticks`), or a timestamp for each step (`timestamps_ns`). */
export interface Timebase {
  readonly type: "ticks" | "timestamps_ns";
  readonly tickHz?: number | null;
  readonly dtNs?: number | bigint | null;
}

/**
 * One stream of values: an array whose first axis is time.
 *
 * `attributes` are further members of its declaration, such as `modality` or `sampling_rate_hz`. A channel
 * that no declaration describes has its bytes as u8, and `isDeclared` false.
 */
export type Channel = NdArray & {
  readonly id: string;
  readonly attributes: JsonObject;
  readonly isDeclared: boolean;
};

/** Bytes that are kept without being understood, with all that their entry said about them. */
export interface Block {
  readonly data: Uint8Array;
  readonly contentType?: number;
  readonly tags?: number;
}

/** Where a chunk stands in its episode. `firstStep` counts from the start of the whole episode. */
export interface ChunkPlace {
  readonly index: number | null;
  readonly total: number | null;
  readonly firstStep: number;
}

/** The file an episode was loaded from: order, types and tags of its blocks, and what was spelled how. */
export interface Origin {
  readonly layout: readonly (readonly [name: string, contentType: number, tags: number])[];
  readonly kept: ReadonlyMap<string, Uint8Array>;
  readonly isSealed: boolean;
}

/** A time-indexed bundle of observations, actions, rewards and endings. */
export interface Episode {
  readonly id: string;
  readonly length: number;
  readonly envId: string;
  readonly timebase: Timebase;
  readonly observations: ReadonlyMap<string, Channel>;
  readonly actions: ReadonlyMap<string, Channel>;
  readonly rewards: Float32Array | null;
  /** Bytes of 0 and 1. */
  readonly terminations: Uint8Array | null;
  readonly truncations: Uint8Array | null;
  readonly timestampsNs: BigInt64Array | null;
  /** Keyed `channel/model`. */
  readonly omens: ReadonlyMap<string, Channel>;
  /** Keyed `channel/model/type`. */
  readonly uncertainties: ReadonlyMap<string, Channel>;
  /** Keyed `channel/sign2nddiff`; packed bits, see `unpackResidual`. */
  readonly residuals: ReadonlyMap<string, Channel>;
  /** The user's. */
  readonly metadata: JsonObject;
  /** Further members of `meta/episode`. */
  readonly attributes: JsonObject;
  readonly chunk: ChunkPlace | null;
  readonly provenance: JsonObject | null;
  /** Every other block. */
  readonly extra: ReadonlyMap<string, Block>;
  readonly origin: Origin | null;
}

export type Named<T> = ReadonlyMap<string, T> | Readonly<Record<string, T>>;

type Group = "observations" | "actions" | "omens" | "uncertainties" | "residuals";

/** An episode to be written. What is left out is empty; groups may be plain objects. */
export type EpisodeInit = Pick<Episode, "id" | "length"> &
  Partial<Omit<Episode, "id" | "length" | Group | "extra">> & {
    readonly [K in Group]?: Named<Channel>;
  } & { readonly extra?: Named<Block> };

export interface ChannelOptions {
  /** How the elements are stored, where the array type alone does not say: f16, bf16 or bool. */
  readonly dtype?: DType;
  readonly attributes?: JsonObject;
  readonly isDeclared?: boolean;
}

/** A channel over an array, which is not copied. `stepShape` is that of one step: `[]` for scalars. */
export function channel(
  id: string,
  data: TypedArray,
  stepShape: readonly number[] = [],
  options: ChannelOptions = {},
): Channel {
  const width = product(stepShape);
  const rows = width === 0 ? 0 : data.length / width;
  if (!Number.isInteger(rows)) {
    throw new BadInputError(
      `channel '${id}' has ${data.length} elements, which are not steps of [${stepShape.join(", ")}]`,
    );
  }
  const { dtype = dtypeOf(data), attributes = {}, isDeclared = true } = options;
  return { id, dtype, shape: [rows, ...stepShape], data, attributes, isDeclared } as Channel;
}

/** Every field filled in. */
export function completeEpisode(init: EpisodeInit): Episode {
  return {
    envId: "",
    timebase: { type: "ticks" },
    rewards: null,
    terminations: null,
    truncations: null,
    timestampsNs: null,
    metadata: {},
    attributes: {},
    chunk: null,
    provenance: null,
    origin: null,
    ...init,
    observations: toMap(init.observations),
    actions: toMap(init.actions),
    omens: toMap(init.omens),
    uncertainties: toMap(init.uncertainties),
    residuals: toMap(init.residuals),
    extra: toMap(init.extra),
  };
}

function toMap<T>(named: Named<T> | undefined): ReadonlyMap<string, T> {
  return named instanceof Map ? named : new Map(Object.entries(named ?? {}));
}

/** Steps per second, where there is a rate; `tickHz` wins over `dtNs`, which is rounded. */
export function timebaseHz(timebase: Timebase): number | null {
  if (timebase.type !== "ticks") {
    return null;
  }
  return timebase.tickHz || (timebase.dtNs ? 1e9 / Number(timebase.dtNs) : null);
}

/** Every channel by the name of its block. */
export function lanesOf(episode: Episode): ReadonlyMap<string, Channel> {
  const groups = [
    ["signal", episode.observations],
    ["action", episode.actions],
    ["omen", episode.omens],
    ["uncert", episode.uncertainties],
    ["residual", episode.residuals],
  ] as const;
  return new Map(
    groups.flatMap(([prefix, group]) => [...group].map(([name, item]) => [`${prefix}/${name}`, item] as const)),
  );
}

export function stepShapeOf(array: NdArray): readonly number[] {
  return array.shape.slice(1);
}

/** Whether a channel need not have one row per step: it has a rate of its own, or is an encoded stream. */
export function isOfOwnLength(attributes: JsonObject): boolean {
  return Object.hasOwn(attributes, "sampling_rate_hz") || isEncoded(attributes);
}

/** Whether the bytes are an encoded stream, such as video. */
export function isEncoded(attributes: JsonObject): boolean {
  return Object.hasOwn(attributes, "encoding");
}

/** `BadInputError` unless every array has the length that the episode claims. */
export function checkEpisode(episode: Episode): void {
  for (const [name, item] of lanesOf(episode)) {
    const rows = item.shape[0];
    if (rows === undefined) {
      throw new BadInputError(`channel '${name}' is a scalar; its first axis must be time`);
    }
    const isCounted = item.isDeclared && !name.startsWith("residual/") && !isOfOwnLength(item.attributes);
    if (isCounted && rows !== episode.length) {
      throw new BadInputError(`channel '${name}' has ${rows} steps, the episode ${episode.length}`);
    }
  }
  for (const name of ["rewards", "terminations", "truncations", "timestampsNs"] as const) {
    const array = episode[name];
    if (array !== null && array.length !== episode.length) {
      throw new BadInputError(`${name} has ${array.length} steps, the episode ${episode.length}`);
    }
  }
  if (episode.timebase.type === "timestamps_ns" && episode.timestampsNs === null) {
    throw new BadInputError("the timebase is timestamps_ns, and there are no timestamps");
  }
}
