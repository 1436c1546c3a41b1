/** If this fails, the journal of a running or crashed recording returns steps that were not recorded. */

import assert from "node:assert/strict";
import test from "node:test";

import { crc32c } from "../src/digests.js";
import { loadWShard } from "../src/index.js";
import { bytesOf } from "./scenes.js";

type Fields = Partial<{ magic: number; kind: number; number: number; first: number; count: number; size: number }>;

const PARTS = [
  { id: "q", dtype: "f32", shape: [2], signal_block: "signal/q" },
  { id: "n", dtype: "i64", shape: [], signal_block: "action/n" },
  { id: "reward", dtype: "f32", shape: [], signal_block: "reward" },
  { id: "done", dtype: "bool", shape: [], signal_block: "done" },
];
const EPISODE = { episode_id: "e", env_id: "E", timebase: { type: "ticks", tick_hz: 10.5 } };
const BEGIN = { v: 1, episode: EPISODE, parts: PARTS, save: {}, buffer_steps: 4 };

function record(payload: Uint8Array, fields: Fields): Uint8Array {
  const { magic = 0x314a5357, kind = 2, number = 0, first = 0, count = 0, size = payload.length } = fields;
  const head = new DataView(new ArrayBuffer(40));
  head.setUint32(0, magic, true);
  head.setUint8(4, kind);
  head.setUint32(8, number, true);
  head.setBigUint64(12, BigInt(first), true);
  head.setUint32(20, count, true);
  head.setBigUint64(24, BigInt(size), true);
  head.setUint32(32, crc32c(payload), true);
  head.setUint32(36, crc32c(new Uint8Array(head.buffer, 0, 36)), true);
  return new Uint8Array(Buffer.concat([new Uint8Array(head.buffer), payload]));
}

function begin(document: unknown, fields: Fields = {}): Uint8Array {
  return record(new TextEncoder().encode(JSON.stringify(document)), { kind: 1, ...fields });
}

/** Returns the steps `first` to `first + count`, part after part. */
function steps(number: number, first: number, count: number, fields: Fields = {}): Uint8Array {
  const range = Array.from({ length: count }, (_, at) => first + at);
  const payload = Buffer.concat([
    new Uint8Array(Float32Array.from(range.flatMap((step) => [step, step + 0.5])).buffer),
    new Uint8Array(BigInt64Array.from(range, BigInt).buffer),
    new Uint8Array(Float32Array.from(range, (step) => step / 2).buffer),
    Uint8Array.from(range, (step) => (step === 9 ? 1 : 0)),
  ]);
  return record(new Uint8Array(payload), { number, first, count, ...fields });
}

const END = record(new Uint8Array(0), { kind: 3, number: 4, first: 10 });
const WHOLE = [begin(BEGIN), steps(1, 0, 4), steps(2, 4, 4), steps(3, 8, 2), END];
const ENDS = WHOLE.map((_, at) => WHOLE.slice(0, at + 1).reduce((sum, part) => sum + part.length, 0));
const join = (parts: readonly Uint8Array[]): Uint8Array => new Uint8Array(Buffer.concat(parts));

test("all records before the first invalid one are read", async () => {
  const data = join(WHOLE);
  const seen = new Set<number>();
  for (let size = 0; size <= data.length; size++) {
    const whole = ENDS.filter((end) => end <= size).length;
    if (whole === 0) {
      await assert.rejects(loadWShard(data.subarray(0, size)), { kind: "corrupt" });
      continue;
    }
    const episode = await loadWShard(data.subarray(0, size));
    assert.equal(episode.length, [0, 4, 8, 10, 10][whole - 1]);
    seen.add(episode.length);
    assert.deepEqual(
      [...episode.actions.get("n")!.data],
      Array.from({ length: episode.length }, (_, at) => BigInt(at)),
    );
    assert.deepEqual(
      [...episode.rewards!],
      Array.from({ length: episode.length }, (_, at) => at / 2),
    );
  }
  assert.deepEqual([...seen], [0, 4, 8, 10]);
  const whole = await loadWShard(data);
  assert.deepEqual([whole.envId, whole.timebase.tickHz, whole.observations.get("q")!.shape], ["E", 10.5, [10, 2]]);
});

test("a flipped byte loses its record and later ones only", async () => {
  const data = join(WHOLE);
  const good = bytesOf((await loadWShard(data)).observations.get("q")!);
  for (let at = WHOLE[0]!.length; at < data.length; at++) {
    const spoiled = Uint8Array.from(data);
    spoiled[at]! ^= 0x55;
    const episode = await loadWShard(spoiled);
    assert.ok([0, 4, 8, 10].includes(episode.length));
    const part = bytesOf(episode.observations.get("q")!);
    assert.deepEqual(part, good.subarray(0, part.length));
  }
});

const second: Readonly<Record<string, Uint8Array>> = {
  "another magic": steps(1, 0, 4, { magic: 1 }),
  "another number": steps(2, 0, 4),
  "a second first record": begin(BEGIN, { number: 1 }),
  "an unknown kind": steps(1, 0, 4, { kind: 4 }),
  "another first step": steps(1, 1, 4),
  "another count": steps(1, 0, 4, { count: 5 }),
  "a size beyond the file": steps(1, 0, 4, { size: 2 ** 40 }),
  "an end with steps": record(new Uint8Array(0), { kind: 3, number: 1, count: 1 }),
};

test("records out of sequence are not read", async () => {
  for (const [name, spoiled] of Object.entries(second)) {
    assert.equal((await loadWShard(join([begin(BEGIN), spoiled, steps(2, 4, 4)]))).length, 0, name);
  }
});

test("predictions are read, with types that do not follow from their names", async () => {
  const parts = [
    ...PARTS.slice(0, 1),
    { id: "q/m", dtype: "f32", shape: [2], signal_block: "omen/q/m" },
    { id: "odd", dtype: "u8", shape: [3], signal_block: "uncert/q/m/std" },
  ];
  const payload = new Uint8Array(8 + 8 + 3).fill(1);
  const data = join([begin({ ...BEGIN, parts }), record(payload, { number: 1, count: 1 })]);
  const episode = await loadWShard(data);
  assert.deepEqual([...episode.omens].map(([name, { id, dtype }]) => [name, id, dtype]), [["q/m", "q/m", "f32"]]);
  assert.deepEqual([...episode.uncertainties.get("q/m/std")!.data], [1, 1, 1]);
  assert.equal(episode.uncertainties.get("q/m/std")!.id, "odd");
});

const part = (change: object): unknown => ({ ...BEGIN, parts: [{ ...PARTS[0], ...change }] });
const first: Readonly<Record<string, Uint8Array>> = {
  "no first record": steps(0, 0, 4),
  "not JSON": record(new TextEncoder().encode("{"), { kind: 1 }),
  "another version": begin({ ...BEGIN, v: 2 }),
  "no parts": begin({ ...BEGIN, parts: 5 }),
  "a part that is not an object": begin({ ...BEGIN, parts: [5] }),
  "no episode": begin({ ...BEGIN, episode: null }),
  "an episode without an id": begin({ ...BEGIN, episode: {} }),
  "a part twice": begin({ ...BEGIN, parts: [PARTS[0], PARTS[0]] }),
  "metadata as a part": begin(part({ signal_block: "meta/episode" })),
  "a part without a defined type": begin(part({ signal_block: "x/y" })),
  "a reward of another type": begin(part({ signal_block: "reward", dtype: "u32", shape: [] })),
  "timestamps promised": begin({ ...BEGIN, episode: { ...EPISODE, timebase: { type: "timestamps_ns" } } }),
};

test("first records that do not describe an episode are refused", async () => {
  for (const [name, data] of Object.entries(first)) {
    await assert.rejects(loadWShard(data), { kind: "corrupt" }, name);
  }
});
