/** If this fails, the chunks of an episode are joined in another order, or damaged and foreign chunks are accepted. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, unlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type TestContext } from "node:test";

import {
  channel,
  encodeChunkManifest,
  encodeWShard,
  identity,
  joinedIdentity,
  joinFiles,
  loadChunkManifest,
  loadWShard,
  openJoined,
  openWShard,
  validateChunkFiles,
  type ChunkEntry,
  type EpisodeInit,
} from "../src/index.js";

const CUTS = [0, 4, 5, 11];
const values = (first: number, last: number): Float64Array =>
  Float64Array.from({ length: 2 * (last - first) }, (_, at) => 2 * first + at);

function piece(number: number): EpisodeInit {
  const [first, last] = [CUTS[number]!, CUTS[number + 1]!];
  const rate = { attributes: { sampling_rate_hz: 60 } };
  return {
    id: "long",
    length: last - first,
    envId: "E",
    timebase: { type: "ticks", tickHz: 30 },
    observations: { s: channel("s", values(first, last), [2]), fast: channel("fast", values(first, last), [], rate) },
    rewards: Float32Array.from({ length: last - first }, (_, at) => first + at),
    metadata: { a: number, [`m${number}`]: true },
    chunk: { index: number, total: CUTS.length - 1, firstStep: first },
  };
}

async function written(t: TestContext, change: (number: number) => Partial<EpisodeInit> = () => ({})): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "wshard-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const chunks: ChunkEntry[] = [];
  for (let number = 0; number + 1 < CUTS.length; number++) {
    const episode = { ...piece(number), ...change(number) };
    const { bytes } = await encodeWShard(episode, number === 1 ? { compression: "zstd" } : {});
    const uri = `long_chunk_000${number}.wshard`;
    writeFileSync(join(folder, uri), bytes);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    const place = { firstStep: CUTS[number]!, lastStep: CUTS[number + 1]! - 1, length: episode.length };
    chunks.push({ index: number, uri, sha256, ...place, total: CUTS.length - 1 });
  }
  const manifest = { episodeId: "long", envId: "E", totalChunks: CUTS.length - 1, totalTimesteps: 11, chunks };
  const path = join(folder, "long_manifest.wshard");
  writeFileSync(path, await encodeChunkManifest(manifest));
  return path;
}

test("windows run over the chunks", async (t) => {
  const path = await written(t);
  const file = await openJoined(path);
  const info = await file.info();
  assert.deepEqual([info.id, info.length, info.chunk], ["long", 11, null]);
  assert.deepEqual(info.metadata, { a: 2, m0: true, m1: true, m2: true });
  const block = file.block("signal/s");
  for (let start = 0; start <= 11; start++) {
    for (let stop = start; stop <= 11; stop++) {
      const window = await block.window(start, stop);
      assert.deepEqual([window.shape, window.data], [[stop - start, 2], values(start, stop)]);
    }
  }
  assert.deepEqual((await block.read()).data, values(0, 11));
  assert.deepEqual((await file.block("signal/fast").read()).shape, [22]);
  await assert.rejects(block.window(0, 12), { kind: "bad_input" });
  assert.throws(() => file.block("meta/episode"), { kind: "unsupported" });
  assert.throws(() => file.block("signal/none"), { kind: "not_found" });
  await file.close();
});

test("all chunks are loaded as one episode, with the identity of their list", async (t) => {
  const path = await written(t);
  const episode = await loadWShard(path);
  assert.deepEqual([episode.length, episode.chunk, episode.observations.get("s")!.shape], [11, null, [11, 2]]);
  assert.deepEqual(
    [...episode.rewards!],
    Array.from({ length: 11 }, (_, at) => at),
  );
  assert.deepEqual([...(await loadWShard(path, { channels: ["s"] })).observations.keys()], ["s"]);
  const folder = join(path, "..");
  const bytes = new Map(
    (await loadChunkManifest(path)).chunks.map(({ uri }) => [uri, readFileSync(join(folder, uri))]),
  );
  const open = (uri: string): Uint8Array => bytes.get(uri)!;
  const inMemory = new Uint8Array(readFileSync(path));
  assert.deepEqual((await loadWShard(inMemory, { open })).observations.get("s")!.data, values(0, 11));
  await assert.rejects(loadWShard(inMemory), { kind: "unsupported" });
  const names = await Promise.all([...bytes.values()].map((data) => identity(data)));
  assert.match(await joinedIdentity(names), /^[0-9a-f]{64}$/);
  assert.notEqual(await joinedIdentity(names), await joinedIdentity(names.reverse()));
});

test("chunks that differ are refused", async (t) => {
  const scalar = (dtype: "f32" | "f64", rows: number) =>
    channel("s", dtype === "f32" ? new Float32Array(rows * 2) : new Float64Array(rows * 2), [2]);
  const changes: Record<string, (number: number) => Partial<EpisodeInit>> = {
    environment: (number) => ({ envId: `E${number}` }),
    rate: (number) => ({ timebase: { type: "ticks", tickHz: 30 + number } }),
    dtype: (number) => (number === 1 ? { observations: { s: scalar("f32", 1) } } : {}),
    channel: (number) => (number === 2 ? { observations: {} } : {}),
    id: (number) => ({ id: number === 2 ? "other" : "long" }),
    series: (number) => (number === 1 ? { rewards: null } : {}),
  };
  for (const [name, change] of Object.entries(changes)) {
    const path = await written(t, change);
    await assert.rejects(openJoined(path), { kind: "corrupt" }, name);
    await assert.rejects(loadWShard(path), { kind: "corrupt" }, name);
  }
});

test("a missing or replaced chunk is named", async (t) => {
  const path = await written(t);
  const [first, second] = (await loadChunkManifest(path)).chunks.map(({ uri }) => join(path, "..", uri));
  const good = readFileSync(second!);
  unlinkSync(second!);
  await assert.rejects(openJoined(path), /long_chunk_0001.wshard.* is missing/);
  await assert.rejects(loadWShard(path), /long_chunk_0001.wshard is missing/);
  writeFileSync(second!, readFileSync(first!));
  await assert.rejects(loadWShard(path), /long_chunk_0001.wshard is not the file that was listed/);
  writeFileSync(second!, good);
  await validateChunkFiles(await loadChunkManifest(path), (uri) => join(path, "..", uri));
});

test("a joined file needs chunks", async () => {
  await assert.rejects(joinFiles([]), { kind: "bad_input" });
  const { bytes } = await encodeWShard(piece(0));
  const joined = await joinFiles([await openWShard(bytes)]);
  assert.deepEqual((await joined.block("signal/s").read()).data, values(0, 4));
});
