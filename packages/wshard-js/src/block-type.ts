/**
 * The type of a block: element type, shape of a step, number of rows.
 *
 * A declaration takes precedence; then the names that the format defines; otherwise the bytes are u8. Nothing is
 * inferred from a size alone. Implements "Block types" of the specification.
 */

import { dtypeBytes, type DType } from "./dtypes.js";
import { CorruptError } from "./errors.js";
import { stepBytes, type ChannelSpec, type EpisodeInfo } from "./metadata.js";
import { isEncoded, hasOwnLength } from "./model.js";

export const REWARD = "reward";
export const DONE = "done";
export const TRUNCATED = "truncated";
export const TICKS = "time/ticks";
export const TIMESTAMPS = "time/timestamps_ns";

/** The element type of the blocks with one number for each step. */
export const SERIES_DTYPES: ReadonlyMap<string, DType> = new Map([
  [REWARD, "f32"],
  [DONE, "bool"],
  [TRUNCATED, "bool"],
  [TICKS, "i32"],
  [TIMESTAMPS, "i64"],
]);
const LATENT: readonly (readonly [string, DType])[] = [
  ["omen/latent_action/", "f32"],
  ["omen/latent_action_codebook/", "i32"],
];

/** `rows` steps of `shape`. Without a declaration the bytes are u8, one to a row. */
export interface BlockType {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly rows: number;
  readonly isDeclared: boolean;
}

type StepType = Pick<BlockType, "dtype" | "shape">;

/** Returns the type of a block; `CorruptError` if a declaration contradicts its size. */
export function findBlockType(name: string, sizeBytes: number, info: EpisodeInfo | null): BlockType {
  const raw: BlockType = { dtype: "u8", shape: [], rows: sizeBytes, isDeclared: false };
  if (info === null) {
    return raw;
  }
  const spec = info.channels.get(name) ?? info.lanes.get(name);
  if (spec !== undefined) {
    return declared(spec, sizeBytes, info.length);
  }
  const dtype = SERIES_DTYPES.get(name);
  if (dtype !== undefined) {
    return checked(name, { dtype, shape: [], rows: info.length, isDeclared: true }, sizeBytes);
  }
  const found = defaultLane(name, sizeBytes, info);
  return found === null ? raw : { ...found, rows: info.length, isDeclared: true };
}

/** Returns the element type and step shape that follow from the name of an undeclared prediction. */
export function defaultLane(
  name: string,
  sizeBytes: number,
  info: Pick<EpisodeInfo, "channels" | "length">,
): StepType | null {
  for (const [prefix, dtype] of LATENT) {
    if (name.startsWith(prefix)) {
      return latent(dtype, sizeBytes, info.length);
    }
  }
  const [lane, ...rest] = name.split("/");
  if (lane !== "omen" && lane !== "uncert") {
    return null;
  }
  const path = rest.join("/");
  // Channels and models may both contain slashes; the longest matching channel id counts.
  const ids = channelsById(info.channels);
  let longest: ChannelSpec | undefined;
  for (let at = path.lastIndexOf("/"); longest === undefined && at > 0; at = path.lastIndexOf("/", at - 1)) {
    longest = ids.get(path.slice(0, at));
  }
  if (longest === undefined || hasOwnLength(longest.attributes)) {
    return null;
  }
  return stepBytes(longest) * info.length === sizeBytes ? { dtype: longest.dtype, shape: longest.shape } : null;
}

const known = new WeakMap<EpisodeInfo["channels"], ReadonlyMap<string, ChannelSpec>>();

/** Channels by id; the first one if several share an id. Computed once for each file. */
function channelsById(channels: EpisodeInfo["channels"]): ReadonlyMap<string, ChannelSpec> {
  let found = known.get(channels);
  if (found === undefined) {
    found = new Map([...channels.values()].reverse().map((spec) => [spec.id, spec]));
    known.set(channels, found);
  }
  return found;
}

function latent(dtype: DType, sizeBytes: number, length: number): StepType | null {
  const width = sizeBytes / length / dtypeBytes(dtype);
  if (length === 0 || width === 0 || sizeBytes % (length * dtypeBytes(dtype)) !== 0) {
    return null;
  }
  return { dtype, shape: dtype === "i32" && width === 1 ? [] : [width] };
}

function declared(spec: ChannelSpec, sizeBytes: number, length: number): BlockType {
  if (isEncoded(spec.attributes)) {
    return { dtype: "u8", shape: [], rows: sizeBytes, isDeclared: true };
  }
  const width = stepBytes(spec);
  const rows = hasOwnLength(spec.attributes) && width > 0 ? Math.floor(sizeBytes / width) : length;
  return checked(spec.block, { dtype: spec.dtype, shape: spec.shape, rows, isDeclared: true }, sizeBytes);
}

function checked(name: string, blockType: BlockType, sizeBytes: number): BlockType {
  const taken = blockType.rows * stepBytes(blockType);
  if (taken !== sizeBytes) {
    throw new CorruptError(
      `block '${name}' has ${sizeBytes} bytes; ${blockType.rows} steps of ${blockType.dtype}` +
        `[${blockType.shape.join(", ")}] take ${taken}`,
    );
  }
  return blockType;
}
