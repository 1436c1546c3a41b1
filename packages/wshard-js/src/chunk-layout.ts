/**
 * The properties that all chunks of an episode share: environment, timebase, and the type of each channel.
 *
 * Joining and checking compare the same values. Implements "Joined chunks" of the specification.
 */

import { findBlockType, SERIES_DTYPES } from "./block-type.js";
import type { DType } from "./dtypes.js";
import { without, type JsonObject } from "./json-read.js";
import { sameJson, show } from "./json-write.js";
import type { EpisodeInfo } from "./metadata.js";
import { isEncoded, timebaseHz, type Timebase } from "./model.js";

/** The declared type of one block, with the attributes that do not differ between chunks. */
interface BlockLayout {
  readonly id: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly rateHz: number;
  readonly isEncoded: boolean;
  readonly attributes: JsonObject;
}

export interface ChunkLayout {
  readonly envId: string;
  readonly timebase: Timebase;
  readonly blocks: ReadonlyMap<string, BlockLayout>;
}

const LANE = /^(?:signal|action|omen|uncert)\/./s;
const VARYING: ReadonlySet<string> = new Set(["frame_count"]);
const JOINED_SERIES: readonly string[] = ["reward", "done", "truncated", "time/timestamps_ns"];

/** Returns the layout of a chunk from its metadata and the sizes of its blocks. */
export function layoutOf(info: EpisodeInfo, sizes: ReadonlyMap<string, number>): ChunkLayout {
  const blocks = new Map<string, BlockLayout>();
  for (const [name, sizeBytes] of sizes) {
    const spec = info.channels.get(name) ?? info.lanes.get(name);
    if (JOINED_SERIES.includes(name)) {
      const { dtype, shape } = spec ?? { dtype: SERIES_DTYPES.get(name)!, shape: [] };
      blocks.set(name, { id: name, dtype, shape, rateHz: 0, isEncoded: false, attributes: {} });
    } else if (LANE.test(name)) {
      const found = spec ?? { ...findBlockType(name, sizeBytes, info), id: name.slice(name.indexOf("/") + 1) };
      if (!("isDeclared" in found) || found.isDeclared) {
        blocks.set(name, blockLayout(found, spec?.attributes ?? {}));
      }
    }
  }
  return { envId: info.envId, timebase: info.timebase, blocks };
}

function blockLayout(
  { id, dtype, shape }: { readonly id: string; readonly dtype: DType; readonly shape: readonly number[] },
  all: JsonObject,
): BlockLayout {
  const attributes = without(all, VARYING);
  if (isEncoded(all)) {
    return { id, dtype: "u8", shape: [], rateHz: 0, isEncoded: true, attributes };
  }
  const rate = Object.hasOwn(all, "sampling_rate_hz") ? all["sampling_rate_hz"] : 0;
  const rateHz = typeof rate === "number" || typeof rate === "bigint" ? Math.max(0, Number(rate)) : 0;
  return { id, dtype, shape, rateHz, isEncoded: false, attributes };
}

/**
 * Returns how a chunk differs from the first one, or null. Unless `isStrict`, attributes and encoded channels, which are
 * not joined, may differ.
 */
export function findDisagreement(first: ChunkLayout, other: ChunkLayout, isStrict: boolean): string | null {
  if (other.envId !== first.envId) {
    return `has the environment ${show(other.envId)} instead of ${show(first.envId)}`;
  }
  const [old, now] = [first.timebase, other.timebase];
  if (now.type !== old.type || timebaseHz(now) !== timebaseHz(old)) {
    return `has ${now.type} at ${timebaseHz(now)} Hz instead of ${old.type} at ${timebaseHz(old)} Hz`;
  }
  for (const name of new Set([...first.blocks.keys(), ...other.blocks.keys()])) {
    const [left, right] = [first.blocks.get(name), other.blocks.get(name)].map((block) =>
      block === undefined || (block.isEncoded && !isStrict) ? null : block,
    );
    if (!isAlike(left ?? null, right ?? null, isStrict)) {
      return `has the block '${name}' as ${format(right ?? null)} instead of ${format(left ?? null)}`;
    }
  }
  return null;
}

function isAlike(left: BlockLayout | null, right: BlockLayout | null, isStrict: boolean): boolean {
  if (left === null || right === null) {
    return left === right;
  }
  const isSame = left.id === right.id && left.dtype === right.dtype && sameJson(left.shape, right.shape);
  const isTimed = left.rateHz === right.rateHz && left.isEncoded === right.isEncoded;
  return isSame && isTimed && (!isStrict || sameJson(left.attributes, right.attributes));
}

function format(block: BlockLayout | null): string {
  if (block === null) {
    return "nothing";
  }
  const { id, dtype, shape, rateHz, attributes } = block;
  return `${id}: ${dtype}[${shape.join(", ")}] at ${rateHz} Hz ${show(attributes)}`;
}
