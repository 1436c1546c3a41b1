/**
 * Answers questions about files, one JSON line for each line of input, so that the tests of the Python library
 * can compare both libraries without starting a process for each file.
 */

import { createInterface } from "node:readline";

import { crc32c } from "../src/digests.js";
import {
  encodeChunkManifest,
  identity,
  loadChunkManifest,
  loadWShard,
  openWShard,
  saveWShard,
  validateChunkContinuity,
  WShardError,
  type Episode,
  type JsonObject,
  type NdArray,
  type SaveOptions,
  type TypedArray,
} from "../src/index.js";
import { encodeJson } from "../src/json-write.js";
import { lanesOf } from "../src/model.js";
import { sha256 } from "../src/sealing.js";
import { bytesOf } from "./scenes.js";

type Question =
  | { readonly ask: "load"; readonly path: string; readonly channels?: readonly string[] }
  | { readonly ask: "identity"; readonly path: string }
  | { readonly ask: "blocks"; readonly path: string }
  | { readonly ask: "window"; readonly path: string; readonly block: string; readonly rows: readonly [number, number] }
  | {
      readonly ask: "rewrite";
      readonly path: string;
      readonly to: string;
      readonly fresh: boolean;
      readonly options: SaveOptions;
    }
  | { readonly ask: "manifest"; readonly path: string };

async function answer(question: Question): Promise<unknown> {
  switch (question.ask) {
    case "load":
      return describe(await loadWShard(question.path, question.channels ? { channels: question.channels } : {}));
    case "identity":
      return identity(question.path);
    case "blocks":
      return blocks(question.path);
    case "window":
      return window(question.path, question.block, question.rows);
    case "rewrite": {
      const episode = await loadWShard(question.path);
      return saveWShard(question.fresh ? { ...episode, origin: null } : episode, question.to, question.options);
    }
    case "manifest": {
      const manifest = await loadChunkManifest(question.path);
      validateChunkContinuity(manifest);
      return [manifest, crc32c(await encodeChunkManifest(manifest))];
    }
  }
}

async function array({ dtype, shape, data }: NdArray): Promise<readonly unknown[]> {
  return [dtype, shape, await sha256(bytesOf({ data }))];
}

const words = (value: JsonObject | null): string => new TextDecoder().decode(encodeJson(value));

async function describe(episode: Episode): Promise<unknown> {
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

async function blocks(path: string): Promise<unknown> {
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

async function window(path: string, block: string, rows: readonly [number, number]): Promise<unknown> {
  const file = await openWShard(path);
  try {
    return await array(await file.block(block).window(...rows));
  } finally {
    await file.close();
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  let said: unknown;
  try {
    said = { answer: await answer(JSON.parse(line) as Question) };
  } catch (error) {
    // Anything without a kind is a mistake of the library's, and must not look like a refusal.
    said = error instanceof WShardError ? { kind: error.kind, message: error.message } : { crash: String(error) };
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
