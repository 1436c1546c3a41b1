/** The channels of an open file: what a viewer needs to know before it reads any values. */

import { SERIES_DTYPES, type BlockType } from "./block-type.js";
import type { DType } from "./dtypes.js";
import { UnsupportedError } from "./errors.js";
import { framesBlock } from "./frame-index.js";
import type { JsonObject } from "./json-read.js";
import type { EpisodeInfo } from "./metadata.js";
import { isEncoded, timebaseHz } from "./model.js";

/** One block with rows or frames. */
export interface ChannelInfo {
  /** The name of the block, for `file.block`. */
  readonly block: string;
  /** The part of the episode: `signal`, `action`, `omen`, `uncert`, `residual`, or `series` for rewards and the like. */
  readonly lane: string;
  readonly id: string;
  readonly dtype: DType;
  /** The shape of one row. */
  readonly shape: readonly number[];
  readonly rows: number;
  /** Rows per second; null for timestamps and for encoded bytes. */
  readonly rateHz: number | null;
  /** The codec or container of encoded bytes, such as `jpeg` or `mp4`; null for values. */
  readonly encoding: string | null;
  /** True if `file.frameIndex` finds the frames of this block. */
  readonly hasFrames: boolean;
  readonly attributes: JsonObject;
}

interface ReadableFile {
  readonly blocks: readonly string[];
  has(name: string): boolean;
  block(name: string): { blockType(): Promise<BlockType> };
}

const LANE = /^(signal|action|omen|uncert|residual)\/./s;

/** Returns the channels and series, in the order of the file. */
export async function listChannels(file: ReadableFile, info: EpisodeInfo): Promise<readonly ChannelInfo[]> {
  const out: ChannelInfo[] = [];
  for (const block of file.blocks) {
    const lane = LANE.exec(block)?.[1] ?? (SERIES_DTYPES.has(block) ? "series" : null);
    if (lane === null) {
      continue;
    }
    const spec = info.channels.get(block) ?? info.lanes.get(block);
    const attributes = spec?.attributes ?? {};
    const { dtype, shape, rows } = await file.block(block).blockType();
    out.push({
      block,
      lane,
      id: spec?.id ?? block.slice(block.indexOf("/") + 1),
      ...{ dtype, shape, rows, attributes },
      rateHz: rateOf(attributes, info),
      encoding: isEncoded(attributes) ? String(attributes["encoding"]) : null,
      hasFrames: file.has(framesBlock(block)),
    });
  }
  return out;
}

function rateOf(attributes: JsonObject, info: EpisodeInfo): number | null {
  if (isEncoded(attributes)) {
    return null;
  }
  const own = Object.hasOwn(attributes, "sampling_rate_hz") ? Number(attributes["sampling_rate_hz"]) : 0;
  return own > 0 ? own : timebaseHz(info.timebase);
}

/** Returns the times of steps at a fixed rate, in nanoseconds from the first step. */
export function tickTimesNs({ timebase }: EpisodeInfo, start: number, stop: number): BigInt64Array {
  const hz = timebaseHz(timebase);
  if (hz === null) {
    throw new UnsupportedError("the episode has neither a rate nor timestamps");
  }
  const stepNs = timebase.tickHz ? null : BigInt(timebase.dtNs ?? 0);
  const timeOf = (step: number): bigint =>
    stepNs === null ? BigInt(Math.round((step * 1e9) / hz)) : BigInt(step) * stepNs;
  return BigInt64Array.from({ length: stop - start }, (_, at) => timeOf(start + at));
}
