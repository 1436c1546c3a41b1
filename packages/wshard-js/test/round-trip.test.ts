/** If this fails, saving and loading changes an episode: values, types or metadata are lost. */

import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import fc from "fast-check";

import {
  channel,
  DTYPES,
  dtypeBytes,
  encodeWShard,
  identity,
  loadWShard,
  openWShard,
  packResidual,
  saveWShard,
  unpackResidual,
  type Channel,
  type EpisodeInit,
  type Json,
  type SaveOptions,
} from "../src/index.js";
import { decodeArray } from "../src/dtypes.js";
import { bytesOf, contentOf, fullEpisode, laneBytes, RawFile } from "./scenes.js";

const SETTINGS: readonly SaveOptions[] = [
  {},
  { compression: "zstd", alignment: 32 },
  { compression: "lz4", alignment: 16 },
  { compression: ["zstd", 9], alignment: 0 },
  { compression: "zstd", timeChunkSteps: 7 },
  { perBlock: { "signal/cam0/rgb": ["zstd", 19], "signal/state": "lz4" }, seal: true },
];

test("everything round-trips with all settings, under one identity", async () => {
  const found = new Set<string>();
  for (const options of SETTINGS) {
    const { bytes } = await encodeWShard(fullEpisode(), options);
    const loaded = await loadWShard(bytes);
    assert.deepStrictEqual(contentOf(loaded), contentOf(fullEpisode()));
    assert.deepEqual((await encodeWShard(loaded, options)).bytes, bytes, "a rewrite writes the same bytes");
    assert.deepEqual((await encodeWShard(fullEpisode(), options)).bytes, bytes, "writing is deterministic");
    found.add(await identity(bytes));
  }
  assert.equal(found.size, 1);
});

const shortName = fc.string({ unit: "grapheme", minLength: 1, maxLength: 8 });
const words: fc.Arbitrary<Json> = fc.letrec<{ any: Json }>((tie) => ({
  any: fc.oneof(
    { depthSize: "small" },
    fc.constantFrom<Json>(null, true, false),
    fc.integer(),
    fc.bigInt({ min: 2n ** 53n, max: 2n ** 200n }),
    fc
      .double({ noNaN: true, noDefaultInfinity: true })
      .filter((value) => !Number.isSafeInteger(value) || Object.is(value, 0)),
    shortName,
    fc.array(tie("any"), { maxLength: 3 }),
    fc.dictionary(shortName, tie("any"), { maxKeys: 3, noNullPrototype: true }),
  ),
})).any;

function channels(length: number): fc.Arbitrary<Map<string, Channel>> {
  const one = fc
    .record({
      dtype: fc.constantFrom(...DTYPES),
      shape: fc.array(fc.integer({ min: 1, max: 4 }), { maxLength: 2 }),
      seed: fc.integer(),
    })
    .map(({ dtype, shape, seed }) => {
      const size = shape.reduce((all, more) => all * more, length * dtypeBytes(dtype));
      const bytes = Uint8Array.from({ length: size }, (_, at) =>
        dtype === "bool" ? (seed >> (at % 31)) & 1 : seed * (at + 1),
      );
      return decodeArray(bytes, dtype, [length, ...shape]);
    });
  return fc
    .uniqueArray(fc.tuple(shortName, one), { maxLength: 3, selector: ([name]) => name })
    .map((made) => new Map(made.map(([id, array]) => [id, { ...array, id, attributes: {}, isDeclared: true }])));
}

const episodes: fc.Arbitrary<EpisodeInit> = fc.integer({ min: 0, max: 40 }).chain((length) =>
  fc.record({
    id: shortName,
    length: fc.constant(length),
    envId: fc.string({ unit: "grapheme", maxLength: 8 }),
    timebase: fc.option(fc.double({ min: 0.001, max: 1e6, noNaN: true })).map((tickHz) => ({
      type: "ticks" as const,
      tickHz,
      dtNs: tickHz === null ? null : Math.round(1e9 / tickHz),
    })),
    observations: channels(length),
    actions: channels(length),
    metadata: fc.dictionary(shortName, words, { maxKeys: 3, noNullPrototype: true }),
    extra: fc
      .uniqueArray(fc.tuple(shortName, fc.uint8Array({ maxLength: 300 }), fc.integer({ min: 0, max: 0xffff })), {
        maxLength: 3,
        selector: ([name]) => name,
      })
      .map((made) => new Map(made.map(([name, data, contentType]) => [`x/${name}`, { data, contentType, tags: 0 }]))),
  }),
);

test("any episode round-trips, and its windows are slices", async () => {
  const settings = fc.record({
    compression: fc.constantFrom("none" as const, "zstd" as const, "lz4" as const),
    alignment: fc.constantFrom(0 as const, 16 as const, 32 as const, 64 as const),
    timeChunkSteps: fc.constantFrom(0, 1, 5),
    seal: fc.boolean(),
  });
  const property = fc.asyncProperty(episodes, settings, fc.nat(), fc.nat(), async (episode, options, low, high) => {
    const { bytes } = await encodeWShard(episode, options);
    const loaded = await loadWShard(bytes);
    assert.deepStrictEqual(contentOf(loaded), contentOf(episode));
    assert.deepEqual((await encodeWShard(loaded, options)).bytes, bytes);
    const file = await openWShard(bytes);
    for (const name of file.blocks) {
      const whole = await file.block(name).read();
      const rows = whole.shape[0]!;
      const [start, stop] = [low % (rows + 1), high % (rows + 1)].sort((a, b) => a - b) as [number, number];
      const part = await file.block(name).window(start, stop);
      const width = rows === 0 ? 0 : whole.data.byteLength / rows;
      assert.deepEqual([part.dtype, part.shape], [whole.dtype, [stop - start, ...whole.shape.slice(1)]]);
      assert.deepEqual(bytesOf(part), bytesOf(whole).subarray(start * width, stop * width));
    }
  });
  await fc.assert(property, { numRuns: 80 });
});

test("sealing and provenance", async () => {
  const names = ["end_state", "epoch", "first_seq", "last_seq", "prev_identity", "run_id", "source", "start_state"];
  const provenance = { ...Object.fromEntries(names.map((name) => [name, null])), v: 1 };
  const { bytes, identity: sealed } = await encodeWShard({ ...fullEpisode(), provenance }, { seal: true });
  assert.deepEqual((await openWShard(bytes)).blocks.slice(-2), ["meta/provenance", "meta/identity"]);
  const again = await loadWShard(bytes);
  assert.equal((await encodeWShard(again, { compression: "zstd" })).identity, sealed, "a sealed episode stays sealed");
  assert.notEqual((await encodeWShard({ ...again, metadata: { other: 1 } })).identity, sealed);
  await assert.rejects(encodeWShard({ ...fullEpisode(), provenance: { v: 1 } }), {
    kind: "bad_input",
    message: /epoch/,
  });
});

test("a broken seal is detected", async () => {
  const { bytes } = await encodeWShard({ id: "a", length: 1, rewards: new Float32Array(1) }, { seal: true });
  const file = await openWShard(bytes);
  const blocks: Record<string, Uint8Array> = {};
  for (const name of file.blocks) {
    blocks[name] = (await file.block(name).raw()).slice();
  }
  blocks["reward"]![0] = 1;
  await assert.rejects(identity(new RawFile(blocks).build()), { kind: "corrupt", message: /sealed/ });
});

test("unknown members and blocks survive a change", async () => {
  const text = (value: string): Uint8Array => new TextEncoder().encode(value);
  const before = new RawFile({
    "meta/episode": text(
      '{"metadata": {"rate": 30.0, "n": 1e2}, "novel": {"a": [2.0, 2]}, "length_T": 4, "episode_id": "e"}',
    ),
    "meta/channels": text('{"novel": true, "channels": [{"unit": 1.0, "id": "s", "dtype": "f32", "shape": [2]}]}'),
    "x/y": text("?"),
    "signal/s": new Uint8Array(32),
    done: Uint8Array.of(0, 0, 0, 255),
  }).build();
  const loaded = await loadWShard(before);
  assert.deepEqual([...loaded.terminations!], [0, 0, 0, 1]);
  assert.deepEqual((await encodeWShard(loaded)).bytes, before);
  const state = loaded.observations.get("s")!;
  const changed = { ...loaded, envId: "New", observations: { s: { ...state, id: "t" } } };
  const file = await openWShard((await encodeWShard(changed)).bytes);
  const shown = async (name: string): Promise<string> => new TextDecoder().decode(await file.block(name).raw());
  assert.equal(
    await shown("meta/episode"),
    '{"env_id":"New","episode_id":"e","length_T":4,"metadata":{"n":100.0,"rate":30.0},"novel":{"a":[2.0,2]},"timebase":{"type":"ticks"}}',
  );
  assert.equal(
    await shown("meta/channels"),
    '{"channels":[{"dtype":"f32","id":"t","shape":[2],"signal_block":"signal/s","unit":1.0}],"novel":true}',
  );
  assert.deepEqual(await file.block("done").raw(), Uint8Array.of(0, 0, 0, 255));
  assert.deepEqual(file.blocks, ["meta/episode", "meta/channels", "x/y", "signal/s", "done", "meta/wshard"]);
});

test("encoded streams are stored unchanged", async () => {
  const declared = { id: "v", dtype: "u8", shape: [480, 640, 3], signal_block: "signal/v", encoding: "h264" };
  const before = new RawFile({
    "meta/episode": new TextEncoder().encode('{"episode_id":"e","length_T":4}'),
    "meta/channels": new TextEncoder().encode(JSON.stringify({ channels: [declared] })),
    "signal/v": Uint8Array.of(1, 2, 3),
  }).build();
  const loaded = await loadWShard(before);
  assert.deepEqual([...loaded.observations.get("v")!.data], [1, 2, 3]);
  assert.deepEqual((await encodeWShard(loaded)).bytes, before);
});

test("some channels only, in arrays of their own", async () => {
  const { bytes } = await encodeWShard(fullEpisode());
  const some = await loadWShard(bytes, { channels: ["state", "action/ctrl"] });
  assert.deepEqual([...laneBytes(some).keys()], ["signal/state", "action/ctrl"]);
  assert.notEqual(some.observations.get("state")!.data.buffer, bytes.buffer);
  assert.ok(some.rewards);
  await assert.rejects(loadWShard(bytes, { channels: ["nothing"] }), { kind: "not_found" });
});

const refused: Readonly<Record<string, readonly [Partial<EpisodeInit>, RegExp]>> = {
  "rewards of another length": [{ rewards: new Float32Array(3) }, /rewards/],
  "rewards of another type": [{ rewards: new Float64Array(40) as unknown as Float32Array }, /Float64Array/],
  "another number of steps": [{ observations: { a: channel("a", new Float32Array(8), [2]) } }, /4 steps/],
  "a scalar": [{ observations: { a: { ...channel("a", new Float32Array(1)), shape: [] } } }, /scalar/],
  "another shape": [{ observations: { a: { ...channel("a", new Float32Array(40)), shape: [40, 2] } } }, /40 elements/],
  "an array under another type": [
    { observations: { a: channel("a", new Float32Array(40), [], { dtype: "f64" }) } },
    /f64/,
  ],
  "many dimensions": [{ observations: { a: channel("a", new Uint8Array(40), new Array(17).fill(1)) } }, /shape/],
  "an empty id": [{ observations: { a: channel("", new Uint8Array(40)) } }, /proper id/],
  NaN: [{ metadata: { a: NaN } }, /JSON/],
  "a lone surrogate": [{ metadata: { a: "\ud800" } }, /JSON/],
  "a date": [{ metadata: { a: new Date() as unknown as Json } }, /JSON/],
  nothing: [{ metadata: { a: undefined as unknown as Json } }, /JSON/],
  deep: [{ metadata: { a: JSON.parse("[".repeat(40) + "]".repeat(40)) as Json } }, /JSON/],
  "no timestamps": [{ timestampsNs: null }, /timestamps/],
  "a block with a field of its own": [{ extra: { reward: { data: new Uint8Array(0) } } }, /reward/],
  "a tag beyond 16 bits": [{ extra: { a: { data: new Uint8Array(0), tags: 65_536 } } }, /16 bits/],
  "a name that is too long": [{ extra: { ["x".repeat(65_536)]: { data: new Uint8Array(0) } } }, /longer/],
  "a field's name as attribute": [{ attributes: { env_id: "x" } }, /env_id/],
  "a negative rate": [{ timebase: { type: "ticks", tickHz: -1 } }, /rate/],
  "a rate without a step length": [{ timebase: { type: "ticks", tickHz: 1e-300 } }, /steps of/],
  "a length that is not an integer": [{ length: 1.5 }, /steps/],
};

test("invalid episodes are refused and leave no file", async () => {
  const folder = await mkdtemp(join(tmpdir(), "wshard-"));
  try {
    for (const [name, [change, message]] of Object.entries(refused)) {
      const saving = saveWShard({ ...fullEpisode(), ...change }, join(folder, "a.wshard"));
      await assert.rejects(saving, { kind: /bad_input|limit_exceeded/, message }, name);
    }
    const options = [
      { compression: "gzip" },
      { compression: ["zstd", 99] },
      { compression: ["lz4", 9] },
      { alignment: 8 },
      { perBlock: { no: "zstd" } },
      { timeChunkSteps: -1 },
    ];
    for (const option of options) {
      await assert.rejects(saveWShard(fullEpisode(), join(folder, "a.wshard"), option as SaveOptions), {
        kind: "bad_input",
      });
    }
    assert.deepEqual(await readdir(folder), []);
    const path = join(folder, "a.wshard");
    assert.equal(await saveWShard(fullEpisode(), path), null);
    assert.deepEqual(new Uint8Array(await readFile(path)), (await encodeWShard(fullEpisode())).bytes);
    assert.match((await saveWShard(fullEpisode(), path, { seal: true })) ?? "", /^[0-9a-f]{64}$/);
    assert.deepEqual(await readdir(folder), ["a.wshard"]);
    await assert.rejects(saveWShard(fullEpisode(), join(folder, "no", "a.wshard")), { kind: "object_not_found" });
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("residuals of no steps are empty", () => {
  assert.equal(packResidual({ dtype: "f32", shape: [0, 3], data: new Float32Array(0) }).length, 0);
  assert.deepEqual(unpackResidual(new Uint8Array(0), 0).shape, [0, 0]);
  assert.throws(() => unpackResidual(new Uint8Array(1), 0), { kind: "corrupt" });
});

test("residuals are the signs of the second difference", () => {
  const signals = fc
    .integer({ min: 1, max: 30 })
    .chain((length) =>
      fc.tuple(
        fc.constant(length),
        fc.array(fc.float({ noNaN: true, min: -9, max: 9 }), { minLength: length * 2, maxLength: length * 2 }),
      ),
    );
  fc.assert(
    fc.property(signals, ([length, values]) => {
      const x = Float32Array.from(values);
      const bits = unpackResidual(packResidual({ dtype: "f32", shape: [length, 2], data: x }), length);
      assert.deepEqual(bits.shape, [2, length]);
      bits.data.forEach((bit, at) => {
        const [row, step] = [Math.floor(at / length), at % length];
        const bend = 2 * x[step * 2 + row]! - (x[step * 2 + row - 2] ?? 0) - (x[step * 2 + row + 2] ?? 0);
        assert.equal(bit, step > 0 && step < length - 1 && bend > 0 ? 1 : 0);
      });
    }),
  );
});
