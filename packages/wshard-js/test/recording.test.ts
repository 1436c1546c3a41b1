/** If this fails, a recording loses flushed steps, replaces a file, or has two owners. */

import assert from "node:assert/strict";
import { appendFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type TestContext } from "node:test";

import {
  DTYPES,
  fromNumbers,
  identity,
  loadWShard,
  openWShard,
  recover,
  saveWShard,
  toNumbers,
  WShardStreamWriter,
  type StreamChannel,
  type StreamOptions,
  type Timebase,
} from "../src/index.js";

const CHANNELS: readonly StreamChannel[] = [
  ...DTYPES.map((dtype) => ({ id: dtype, dtype, shape: [3], compression: "zstd" as const })),
  { id: "n", dtype: "i64", signalBlock: "action/n", attributes: { unit: "mm" } },
  { id: "f32/m", dtype: "f32", shape: [3], signalBlock: "omen/f32/m", compression: ["zstd", 19] },
];
const TICKS: Timebase = { type: "ticks", tickHz: 30 };

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "wshard-"));
  t.after(() => rmSync(path, { recursive: true }));
  return path;
}

function step(number: number): Parameters<WShardStreamWriter["writeTimestep"]> {
  const values = [number % 2, 1, 0];
  const own = DTYPES.map((dtype) => [dtype, fromNumbers(dtype, [3], values).data] as const);
  const rest = { n: BigInt(number), "f32/m": [number, 0.5, -1] };
  return [
    { ...Object.fromEntries(own), ...rest },
    { reward: number / 2, done: number === 9 },
  ];
}

async function started(path: string, options: StreamOptions = {}): Promise<WShardStreamWriter> {
  const writer = new WShardStreamWriter(path, "ep", CHANNELS, { flushSteps: 4, fsync: "never", ...options });
  await writer.beginEpisode({ envId: "E", timebase: TICKS, metadata: { a: [1, 2.5] } });
  return writer;
}

async function checkSteps(path: string, count: number): Promise<void> {
  const episode = await loadWShard(path);
  assert.equal(episode.length, count);
  const steps = Array.from({ length: count }, (_, at) => at);
  for (const dtype of DTYPES) {
    const expected = steps.flatMap((number) => [number % 2, 1, 0]);
    assert.deepEqual([...toNumbers(episode.observations.get(dtype)!)], expected, dtype);
  }
  assert.deepEqual([...episode.actions.get("n")!.data], steps.map(BigInt));
  assert.deepEqual(
    [...episode.rewards!],
    steps.map((number) => number / 2),
  );
  assert.deepEqual(
    [...episode.terminations!],
    steps.map((number) => Number(number === 9)),
  );
  assert.deepEqual(episode.metadata, { a: [1, 2.5] });
}

test("a recording ends in the file that saving would write", async (t) => {
  for (const options of [
    {},
    { seal: true, timeChunkSteps: 3, alignment: 32 },
    { flushSteps: 1, fsync: "end" },
  ] as const) {
    const path = join(folder(t), "ep.wshard");
    const writer = await started(path, options);
    for (let number = 0; number < 10; number++) {
      writer.writeTimestep(...step(number));
      await checkSteps(writer.partialPath, writer.flushedSteps);
    }
    assert.equal(await writer.endEpisode(), path);
    writer.close();
    await checkSteps(path, 10);
    assert.deepEqual(readdirSync(join(path, "..")), ["ep.wshard"]);
    const again = `${path}.again`;
    await saveWShard({ ...(await loadWShard(path)), origin: null }, again);
    assert.equal(await identity(again), await identity(path));
  }
});

test("windows of a recorded file in time chunks", async (t) => {
  const path = join(folder(t), "ep.wshard");
  const channels = [{ id: "x", dtype: "f64", shape: [5], compression: "zstd" }] as const;
  const writer = new WShardStreamWriter(path, "ep", channels, { timeChunkSteps: 7, fsync: "never" });
  await writer.beginEpisode();
  for (let number = 0; number < 100; number++) {
    writer.writeTimestep({ x: [number, 1, 2, 3, 4] });
  }
  await writer.endEpisode();
  const file = await openWShard(path);
  const block = file.block("signal/x");
  assert.ok(block.entry.isChunked);
  const window = toNumbers(await block.window(13, 44));
  assert.deepEqual(
    [...window].filter((_, at) => at % 5 === 0),
    Array.from({ length: 31 }, (_, at) => at + 13),
  );
  await file.close();
});

test("a step that does not fit adds nothing", async (t) => {
  const writer = await started(join(folder(t), "ep.wshard"));
  const [good, series] = step(0);
  const { n: _, ...fewer } = good;
  const bad: readonly Parameters<WShardStreamWriter["writeTimestep"]>[] = [
    [fewer],
    [{ ...good, other: 1 }],
    [{ ...fewer, other: 1 }],
    [{ ...good, f32: new Float32Array(4) }],
    [{ ...good, f32: new Float64Array(3) }],
    [{ ...good, f32: [1, 2] }],
    [{ ...good, f32: [1, 2, 1e300] }],
    [{ ...good, u8: [1, 2, 256] }],
    [{ ...good, i32: [1, 2, 0.5] }],
    [{ ...good, bool: Uint8Array.of(0, 1, 2) }],
    [{ ...good, bool: [0, 1, 2] }],
    [{ ...good, u64: [1, 2, -1] }],
    [{ ...good, n: 2 ** 60 }],
    [{ ...good, n: 2n ** 63n }],
    [{ ...good, f32: { dtype: "f32", shape: [1, 3], data: new Float32Array(3) } }],
    [good, { reward: 1e300 }],
    [good, { timestampNs: 5n }],
    [good, { done: 1 as unknown as boolean }],
  ];
  for (const [number, wrong] of bad.entries()) {
    assert.throws(() => writer.writeTimestep(...wrong), { kind: "schema_mismatch" }, String(number));
  }
  assert.equal(writer.stepCount, 0);
  writer.writeTimestep(
    { ...good, bool: [true, false, 1], f32: { dtype: "f32", shape: [3], data: new Float32Array(3) } },
    series,
  );
  assert.equal(writer.stepCount, 1);
  writer.close();
});

test("timestamps are recorded if the timebase has them", async (t) => {
  const path = join(folder(t), "ep.wshard");
  const writer = new WShardStreamWriter(path, "ep", [], { fsync: "never" });
  await writer.beginEpisode({ timebase: { type: "timestamps_ns" } });
  assert.throws(() => writer.writeTimestep({}), { kind: "schema_mismatch" });
  assert.throws(() => writer.writeTimestep({}, { timestampNs: 0.5 }), { kind: "schema_mismatch" });
  assert.throws(() => writer.writeTimestep({}, { timestampNs: 2n ** 63n }), { kind: "schema_mismatch" });
  writer.writeTimestep({}, { timestampNs: -(2n ** 63n) });
  writer.writeTimestep({}, { timestampNs: 7 });
  await writer.endEpisode();
  assert.deepEqual([...(await loadWShard(path)).timestampsNs!], [-(2n ** 63n), 7n]);
});

test("a recovery has every flushed step", async (t) => {
  const path = join(folder(t), "ep.wshard");
  const writer = await started(path);
  for (let number = 0; number < 7; number++) {
    writer.writeTimestep(...step(number));
  }
  await assert.rejects(recover(writer.partialPath), { kind: "conflict" });
  await assert.rejects(started(path), { kind: "conflict" });
  writer.close();
  await assert.rejects(started(path), { kind: "already_exists" });
  appendFileSync(writer.partialPath, "WSJ1 cut short");
  const report = await recover(writer.partialPath, { removePartial: true });
  assert.deepEqual(
    [report.path, report.episodeId, report.stepCount, report.isComplete, report.lostBytes, report.unflushedStepsAtMost],
    [path, "ep", 7, false, 14, 4],
  );
  await checkSteps(path, 7);
  assert.deepEqual((await loadWShard(path)).attributes, { recovered: { lost_bytes: 14 } });
  assert.ok(!existsSync(writer.partialPath));
  await assert.rejects(started(path), { kind: "already_exists" });
  assert.ok(!existsSync(writer.partialPath));
});

test("a journal with steps behind the damage is kept, and its file counts as written", async (t) => {
  const path = join(folder(t), "ep.wshard");
  const writer = await started(path);
  for (let number = 0; number < 12; number++) {
    writer.writeTimestep(...step(number));
  }
  writer.close();
  const data = readFileSync(writer.partialPath);
  data[data.length - Math.floor(data.length / 3)]! ^= 1;
  writeFileSync(writer.partialPath, data);
  for (let turn = 0; turn < 2; turn++) {
    const report = await recover(writer.partialPath, { removePartial: true });
    assert.ok(report.stepCount < 12 && report.problem?.includes("the journal stays"), report.problem ?? "");
    assert.ok(existsSync(writer.partialPath));
  }
  await saveWShard({ id: "other", length: 0 }, path);
  await assert.rejects(recover(writer.partialPath), { kind: "already_exists" });
  assert.deepEqual(readdirSync(join(path, "..")).sort(), ["ep.wshard", "ep.wshard.partial"]);
});

test("a journal without steps is taken over", async (t) => {
  const path = join(folder(t), "ep.wshard");
  const writer = await started(path);
  writer.close();
  const begin = readFileSync(writer.partialPath);
  for (const size of [0, 3, 20, begin.length - 1]) {
    writeFileSync(writer.partialPath, begin.subarray(0, size));
    (await started(path)).close();
  }
  writeFileSync(writer.partialPath, "something else");
  await assert.rejects(started(path), { kind: "already_exists" });
});

test("what cannot become a file is refused before it is recorded", async (t) => {
  const path = join(folder(t), "ep.wshard");
  const refused: readonly (readonly [readonly StreamChannel[], StreamOptions])[] = [
    [[{ id: "", dtype: "f32" }], {}],
    [[{ id: "x", dtype: "f32", signalBlock: "residual/x" }], {}],
    [[{ id: "x", dtype: "f99" as "f32" }], {}],
    [[{ id: "x", dtype: "f32", shape: [-1] }], {}],
    [
      [
        { id: "x", dtype: "f32" },
        { id: "x", dtype: "f32", signalBlock: "action/x" },
      ],
      {},
    ],
    [[{ id: "x", dtype: "f32", compression: "zip" as "zstd" }], {}],
    [[], { flushSteps: 0 }],
    [[], { timeChunkSteps: -1 }],
    [[], { alignment: 7 as 16 }],
  ];
  for (const [channels, options] of refused) {
    assert.throws(() => new WShardStreamWriter(path, "ep", channels, options), { kind: "bad_input" });
  }
  const wide = new WShardStreamWriter(path, "ep", [{ id: "x", dtype: "f64", shape: [2 ** 30] }]);
  await assert.rejects(wide.beginEpisode(), { kind: "limit_exceeded" });
  const named = new WShardStreamWriter(path, "ep", []);
  await assert.rejects(named.beginEpisode({ attributes: { length_T: 5 } }), { kind: "bad_input" });
  assert.throws(() => named.writeTimestep({}), { kind: "bad_input" });
  assert.deepEqual(readdirSync(join(path, "..")), []);
});
