/**
 * An episode in memory. Values only: no files, no bytes of the format.
 *
 * A loaded `Episode` remembers its file (`origin`), so that saving it again changes only what the user changed. Use a
 * spread to change one: `{ ...episode, envId: "Lift-v2" }`.
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
 * `attributes` are further members of the declaration, such as `modality` or `sampling_rate_hz`. A channel without a
 * declaration has its bytes as u8, and `isDeclared` false.
 */
export type Channel = NdArray & {
  readonly id: string;
  readonly attributes: JsonObject;
  readonly isDeclared: boolean;
};

/** Bytes that are stored without interpretation, with the content type and tags of their index entry. */
export interface Block {
  readonly data: Uint8Array;
  readonly contentType?: number;
  readonly tags?: number;
}

/** The position of a chunk in its episode. `firstStep` counts from the start of the whole episode. */
export interface ChunkPlace {
  readonly index: number | null;
  readonly total: number | null;
  readonly firstStep: number;
}

/** The file of a loaded episode: order, content types and tags of its blocks, and bytes to write back verbatim. */
export interface Origin {
  readonly layout: readonly (readonly [name: string, contentType: number, tags: number])[];
  readonly verbatim: ReadonlyMap<string, Uint8Array>;
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
  /** Belongs to the user. */
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

/** An episode to be written. Omitted fields are empty; groups may be plain objects. */
export type EpisodeInit = Pick<Episode, "id" | "length"> &
  Partial<Omit<Episode, "id" | "length" | Group | "extra">> & {
    readonly [K in Group]?: Named<Channel>;
  } & { readonly extra?: Named<Block> };

export interface ChannelOptions {
  /** The stored element type if the array type alone is ambiguous: f16, bf16 or bool. */
  readonly dtype?: DType;
  readonly attributes?: JsonObject;
  readonly isDeclared?: boolean;
}

/** Creates a channel over an array, without a copy. `stepShape` is the shape of one step: `[]` for scalars. */
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

/** Fills in every field. */
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

/** Returns the steps per second, if there is a rate. `tickHz` takes precedence over `dtNs`, which is rounded. */
export function timebaseHz(timebase: Timebase): number | null {
  if (timebase.type !== "ticks") {
    return null;
  }
  return timebase.tickHz || (timebase.dtNs ? 1e9 / Number(timebase.dtNs) : null);
}

/** Returns every channel by the name of its block. */
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

/** Returns whether a channel may have another number of rows than steps: its own rate, or an encoded stream. */
export function hasOwnLength(attributes: JsonObject): boolean {
  return Object.hasOwn(attributes, "sampling_rate_hz") || isEncoded(attributes);
}

/** Returns whether the bytes are an encoded stream, such as video. */
export function isEncoded(attributes: JsonObject): boolean {
  return Object.hasOwn(attributes, "encoding");
}

/** Throws `BadInputError` unless every array has the length of the episode. */
export function checkEpisode(episode: Episode): void {
  for (const [name, item] of lanesOf(episode)) {
    const rows = item.shape[0];
    if (rows === undefined) {
      throw new BadInputError(`channel '${name}' is a scalar; its first axis must be time`);
    }
    const isCounted = item.isDeclared && !name.startsWith("residual/") && !hasOwnLength(item.attributes);
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
    throw new BadInputError("the timebase is timestamps_ns, but the episode has no timestamps");
  }
}
