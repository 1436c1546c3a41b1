/**
 * Answers one JSON line for each line of input, so that the tests of the Python library can compare both libraries
 * without starting a process for each file.
 */

import { createInterface } from "node:readline";

import { crc32c } from "../src/digests.js";
import {
  encodeChunkManifest,
  identity,
  loadChunkManifest,
  loadWShard,
  openWShard,
  recover,
  saveWShard,
  validateChunkContinuity,
  WShardError,
  WShardStreamWriter,
  type SaveOptions,
} from "../src/index.js";
import { blocks, describe, frames, window } from "./describe.js";
import { benchAppend, record } from "./recorder.js";

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
  | { readonly ask: "manifest" | "manifest_checksum"; readonly path: string }
  | { readonly ask: "frames"; readonly path: string; readonly block: string }
  | { readonly ask: "recover"; readonly path: string; readonly to?: string; readonly remove?: boolean }
  | { readonly ask: "claim"; readonly path: string }
  | { readonly ask: "bench"; readonly path: string; readonly block?: string; readonly rows: readonly [number, number] };

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
      return {
        episode_id: manifest.episodeId,
        env_id: manifest.envId,
        total_chunks: manifest.totalChunks,
        total_timesteps: manifest.totalTimesteps,
        chunks: manifest.chunks.map(({ firstStep, lastStep, ...rest }) => ({
          ...rest,
          first_step: firstStep,
          last_step: lastStep,
        })),
      };
    }
    case "manifest_checksum":
      return crc32c(await encodeChunkManifest(await loadChunkManifest(question.path)));
    case "frames":
      return frames(question.path, question.block);
    case "recover": {
      const output = question.to === undefined ? {} : { output: question.to };
      const found = await recover(question.path, { ...output, removePartial: question.remove ?? false });
      return {
        path: found.path,
        step_count: found.stepCount,
        is_complete: found.isComplete,
        lost_bytes: found.lostBytes,
        unflushed_steps_at_most: found.unflushedStepsAtMost,
      };
    }
    case "claim": {
      const writer = new WShardStreamWriter(question.path, "other", []);
      await writer.beginEpisode();
      writer.close();
      return null;
    }
    case "bench":
      return question.block === undefined
        ? benchAppend(question.path, ...question.rows)
        : benchWindows(question.path, question.block, question.rows);
  }
}

/** Returns the seconds of the processor for each of `count` windows of `width` rows. */
async function benchWindows(path: string, name: string, [count, width]: readonly [number, number]): Promise<number> {
  const file = await openWShard(path);
  const block = file.block(name);
  const { rows } = await block.blockType();
  const started = process.cpuUsage();
  for (let number = 0; number < count; number++) {
    const start = (number * 7919) % (rows - width);
    await block.window(start, start + width);
  }
  const { user, system } = process.cpuUsage(started);
  await file.close();
  return (user + system) / 1e6 / count;
}

if (process.argv.length > 2) {
  // Records an episode until it is killed.
  await record(process.argv.slice(2));
  process.exit(0);
}

for await (const line of createInterface({ input: process.stdin })) {
  let said: unknown;
  try {
    said = { answer: await answer(JSON.parse(line) as Question) };
  } catch (error) {
    // An error without a kind is a bug of the library, and must not look like a refusal.
    said = error instanceof WShardError ? { kind: error.kind, message: error.message } : { crash: String(error) };
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
