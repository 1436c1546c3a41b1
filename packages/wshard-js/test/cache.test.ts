/** If this fails, a cached window has other values than the file, or a reader holds more memory than it may. */

import assert from "node:assert/strict";
import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import { channel, encodeWShard, openWShard, type BlockReader, type SaveOptions } from "../src/index.js";
import { bytesOf, CountingSource } from "./scenes.js";

const STEPS = 100;
const STEP_BYTES = 28;
const STATE = Float32Array.from({ length: STEPS * 7 }, (_, at) => Math.round(Math.sin(at) * 16) / 16);
const LAYOUTS: readonly SaveOptions[] = [
  {},
  { alignment: 0 },
  { compression: "zstd" },
  { compression: "lz4" },
  { compression: "zstd", timeChunkSteps: 8 },
];

async function encoded(options: SaveOptions): Promise<Uint8Array<ArrayBuffer>> {
  const flags = channel("flag", Uint8Array.from({ length: STEPS }, (_, at) => at & 1), [], { dtype: "bool" });
  const observations = { state: channel("state", STATE, [7]), flag: flags };
  return (await encodeWShard({ id: "e", length: STEPS, observations }, options)).bytes as Uint8Array<ArrayBuffer>;
}

async function withFile(options: SaveOptions, work: (path: string, bytes: Uint8Array) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "wshard-"));
  try {
    const bytes = await encoded(options);
    await writeFile(join(folder, "a.wshard"), bytes);
    await work(join(folder, "a.wshard"), bytes);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Reads windows until they have read the block once, and one more. */
async function readAll(block: BlockReader): Promise<void> {
  for (let start = 0; start <= STEPS; start += 4) {
    const stop = Math.min(start + 4, STEPS);
    const { shape, data } = await block.window(start, stop);
    assert.deepEqual(shape, [stop - start, 7]);
    assert.deepEqual([...(data as Float32Array)], [...STATE.subarray(start * 7, stop * 7)]);
  }
}

for (const options of LAYOUTS) {
  test(`a block that was read once is cached as one array: ${JSON.stringify(options)}`, async () => {
    await withFile(options, async (path) => {
      const file = await openWShard(path);
      const block = file.block("signal/state");
      assert.equal(block.cachedWindow(0, 4), null);
      await readAll(block);
      const [first, again] = [block.cachedWindow(3, 9)!, await block.window(3, 9)];
      assert.equal(first.data.buffer, again.data.buffer, "views of one array");
      assert.deepEqual([...(first.data as Float32Array)], [...STATE.subarray(21, 63)]);
      assert.throws(() => block.cachedWindow(0, STEPS + 1), { kind: "bad_input" });
      await readAll(block);
      const flags = file.block("signal/flag");
      for (let round = 0; round < 3; round++) {
        assert.deepEqual([...(await flags.window(1, STEPS)).data].slice(0, 3), [1, 0, 1]);
      }
      assert.notEqual(flags.cachedWindow(0, 1), null);
      await file.close();
      assert.equal(block.cachedWindow(0, 4), null);
      await assert.rejects(block.window(0, 4), { kind: "bad_input" });
    });
  });

  test(`a block that does not fit is not cached: ${JSON.stringify(options)}`, async () => {
    await withFile(options, async (path) => {
      for (const cacheBytes of [0, STEPS * STEP_BYTES - 1]) {
        const file = await openWShard(path, { cacheBytes });
        const block = file.block("signal/state");
        await readAll(block);
        await readAll(block);
        assert.equal(block.cachedWindow(0, 4), null);
        await file.close();
      }
    });
  });

  test(`a window may be transferred to a worker: ${JSON.stringify(options)}`, async () => {
    await withFile(options, async (path) => {
      const file = await openWShard(path);
      const block = file.block("signal/state");
      await readAll(block);
      const { data } = await block.window(0, 4);
      structuredClone(data, { transfer: [data.buffer as ArrayBuffer] });
      assert.equal(block.cachedWindow(0, 4), null);
      await readAll(block);
      await file.close();
    });
  });
}

test("a file of a handle and a blob are cached too; other sources of the caller are not", async () => {
  await withFile({}, async (path, bytes) => {
    const handle = await open(path);
    const source = new CountingSource(bytes);
    for (const [where, isCached] of [
      [handle, true],
      [new Blob([bytes as Uint8Array<ArrayBuffer>]), true],
      [bytes, true],
      [source, false],
    ] as const) {
      const file = await openWShard(where);
      const block = file.block("signal/state");
      await readAll(block);
      assert.equal(block.cachedWindow(0, 4) !== null, isCached);
      await file.close();
    }
    await handle.close();
  });
});

test("a block over memory of the caller is a view of it from the first window on", async () => {
  const bytes = await encoded({});
  const block = (await openWShard(bytes)).block("signal/state");
  await block.window(0, 1);
  assert.equal(block.cachedWindow(0, 4)!.data.buffer, bytes.buffer);
});

test("damage in a chunk does not affect windows of others, however often they are read", async () => {
  await withFile({ compression: "zstd", timeChunkSteps: 8 }, async (path, bytes) => {
    const { offset, storedBytes, isChunked } = (await openWShard(bytes)).block("signal/state").entry;
    assert.ok(isChunked);
    bytes[offset + Math.floor(storedBytes / 2)]! ^= 0x55;
    await writeFile(path, bytes);
    const file = await openWShard(path);
    const block = file.block("signal/state");
    for (let round = 0; round < 3 * STEPS; round++) {
      assert.deepEqual(bytesOf(await block.window(0, 8)), new Uint8Array(STATE.buffer, 0, 8 * STEP_BYTES));
    }
    assert.equal(block.cachedWindow(0, 4), null);
    await assert.rejects(block.window(0, STEPS), { kind: "corrupt" });
    await file.close();
  });
});
