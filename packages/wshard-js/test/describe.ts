/** Converts episodes and arrays to JSON, which the tests of the Python library compare with their own. */

import {
  openWShard,
  type Episode,
  type JsonObject,
  type NdArray,
  type Source,
  type TypedArray,
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
  return {
    head: [episode.id, episode.length, episode.envId, type, tickHz, dtNs === null ? null : String(dtNs)],
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

export async function blocks(path: Source): Promise<unknown> {
  const file = await openWShard(path);
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
  const file = await openWShard(path);
  try {
    return await array(await file.block(block).window(...rows));
  } finally {
    await file.close();
  }
}
