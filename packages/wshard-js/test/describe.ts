/** Converts episodes and arrays to JSON, which the tests of the Python library compare with their own. */

import {
  loadChunkManifest,
  openJoined,
  openWShard,
  UnsupportedError,
  type Episode,
  type JoinedFile,
  type JsonObject,
  type NdArray,
  type Source,
  type TypedArray,
  type WShardFile,
} from "../src/index.js";
import { encodeJson } from "../src/json-write.js";
import { lanesOf } from "../src/model.js";
import { sha256 } from "../src/identity.js";

export function bytesOf(array: { readonly data: TypedArray }): Uint8Array {
  return new Uint8Array(array.data.buffer, array.data.byteOffset, array.data.byteLength);
}

async function array({ dtype, shape, data }: NdArray): Promise<readonly unknown[]> {
  return [dtype, shape, await sha256(bytesOf({ data }))];
}

/** Returns the bits of a float64, because JSON has no single form for large fractions. */
function bitsOf(value: number): string {
  return new BigUint64Array(Float64Array.of(value).buffer)[0]!.toString(16).padStart(16, "0");
}

const words = (value: JsonObject | null): string => new TextDecoder().decode(encodeJson(value));

export async function describe(episode: Episode): Promise<unknown> {
  const lanes: [string, unknown][] = [];
  for (const [name, item] of lanesOf(episode)) {
    lanes.push([name, [...(await array(item)), item.id, words(item.attributes), item.isDeclared]]);
  }
  const extra: [string, unknown][] = [];
  for (const [name, block] of episode.extra) {
    extra.push([name, [await sha256(block.data), block.contentType, block.tags]]);
  }
  const series = async (data: TypedArray | null): Promise<string | null> =>
    data === null ? null : sha256(bytesOf({ data }));
  const { type, tickHz, dtNs } = episode.timebase;
  const rate = typeof tickHz === "number" ? bitsOf(tickHz) : null;
  return {
    head: [episode.id, episode.length, episode.envId, type, rate, dtNs === null ? null : String(dtNs)],
    chunk: episode.chunk === null ? null : [episode.chunk.index, episode.chunk.total, episode.chunk.firstStep],
    words: [words(episode.metadata), words(episode.attributes), words(episode.provenance)],
    series: [
      await series(episode.rewards),
      await series(episode.terminations),
      await series(episode.truncations),
      await series(episode.timestampsNs),
    ],
    lanes: Object.fromEntries(lanes),
    extra: Object.fromEntries(extra),
  };
}

/** Opens a file, or the chunks of a manifest. */
async function open(path: Source): Promise<WShardFile | JoinedFile> {
  try {
    await loadChunkManifest(path);
  } catch (error) {
    if (error instanceof UnsupportedError) {
      return openWShard(path);
    }
    throw error;
  }
  return openJoined(path);
}

export async function blocks(path: Source): Promise<unknown> {
  const file = await open(path);
  try {
    const out: [string, unknown][] = [];
    for (const name of file.blocks) {
      out.push([name, await array(await file.block(name).read())]);
    }
    return out;
  } finally {
    await file.close();
  }
}

export async function window(path: Source, block: string, rows: readonly [number, number]): Promise<unknown> {
  const file = await open(path);
  try {
    return await array(await file.block(block).window(...rows));
  } finally {
    await file.close();
  }
}

/** Describes a frame index, and reads the bytes of every frame. */
export async function frames(path: Source, block: string): Promise<unknown> {
  const file = await openWShard(path);
  try {
    const index = await file.frameIndex(block);
    const reader = file.block(block);
    const extents: (readonly [number, number])[] = [];
    const spans: (readonly [number, number])[] = [];
    for (let frame = 0; frame < index.length; frame++) {
      const entry = index.entries[index.entryOf(frame)]!;
      extents.push([entry.offset, entry.offset + entry.sizeBytes]);
      spans.push(index.entrySpan(frame, frame));
      await reader.frameBytes(entry);
    }
    return {
      codec: index.codec,
      extradata: await sha256(index.extradata),
      times: [...index.timesNs].map(String),
      extents,
      spans,
      groups: [...index.groupNumbers],
      encoded: await sha256(index.encode(reader.entry.sizeBytes)),
    };
  } finally {
    await file.close();
  }
}
