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
  saveWShard,
  validateChunkContinuity,
  WShardError,
  type SaveOptions,
} from "../src/index.js";
import { blocks, describe, window } from "./describe.js";

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
