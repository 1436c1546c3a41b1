/** If this fails, files of older or other writers are misread, or files written here fail strict readers. */

import assert from "node:assert/strict";
import test from "node:test";

import { crc32c } from "../src/digests.js";
import {
  channel,
  encodeWShard,
  loadWShard,
  openWShard,
  timebaseHz,
  type EpisodeInit,
  type Timebase,
} from "../src/index.js";
import { compressLz4 } from "../src/lz4.js";
import { bytesOf, fullEpisode, RawFile } from "./scenes.js";

const json = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));
const STATE = Float32Array.of(0, 1, 2, 3, 4, 5, 6, 7);
const EPISODE = { episode_id: "e", env_id: "E", length_T: 4 };

/** Returns a file of four steps with one channel; null omits a document. */
function made(
  documents: Readonly<Record<string, unknown>> = {},
  blocks: Readonly<Record<string, Uint8Array>> = {},
): RawFile {
  const channels = { channels: [{ id: "s", dtype: "f32", shape: [2], signal_block: "signal/s" }] };
  const all = { wshard: { version: 1 }, episode: EPISODE, channels, ...documents };
  const named = Object.entries(all).filter(([, value]) => value !== null);
  return new RawFile({
    ...Object.fromEntries(named.map(([name, value]) => [`meta/${name}`, json(value)])),
    "signal/s": bytesOf({ data: STATE }),
    ...blocks,
  });
}

test("every form of the shard block", async () => {
  const old = { format: "W-SHARD", wshard_version: "0.1", endianness: "little", alignment: 32 };
  const newest = { endianness: "little", format: "W-SHARD", residual_edges: "pad", version: "0.1" };
  for (const wshard of [old, newest, { version: 1, residual_edges: "pad" }, {}, null]) {
    const state = (await loadWShard(made({ wshard }).build())).observations.get("s")!;
    assert.deepEqual([state.shape, [...state.data]], [[4, 2], [...STATE]]);
  }
});

const ticks = (tickHz: number | null, dtNs: number | bigint | null = null): Timebase => ({
  type: "ticks",
  tickHz,
  dtNs,
});
const TIMEBASES: readonly (readonly [unknown, unknown, Timebase, number | null])[] = [
  [null, { type: "ticks", tick_hz: 30 }, ticks(30), 30],
  [{ type: "ticks", tick_hz: 60.5 }, { type: "ticks", tick_hz: 30 }, ticks(60.5), 60.5],
  [{ type: "ticks", dt_ns: 33333333 }, { tick_hz: 30 }, ticks(30, 33333333), 30],
  [{ type: "ticks", dt_ns: 16666667 }, { tick_hz: 30 }, ticks(null, 16666667), 1e9 / 16666667],
  [{ type: "ticks", tick_hz: 50, dt_ns: 1 }, null, ticks(50, 1), 50],
  [{ type: "ticks", tick_hz: 0, dt_ns: 0 }, null, ticks(null), null],
  [{ type: "timestamps_ns" }, { tick_hz: 30 }, { type: "timestamps_ns", tickHz: null, dtNs: null }, null],
  [null, null, ticks(null), null],
];

test("timebases", async () => {
  const times = { "time/timestamps_ns": new Uint8Array(32) };
  for (const [ofEpisode, ofShard, expected, hz] of TIMEBASES) {
    const episode = ofEpisode === null ? EPISODE : { ...EPISODE, timebase: ofEpisode };
    const wshard = ofShard === null ? { version: 1 } : { version: 1, timebase: ofShard };
    const { timebase } = await loadWShard(made({ episode, wshard }, times).build());
    assert.deepEqual([timebase, timebaseHz(timebase)], [expected, hz]);
  }
});

test("rates are written with their step, ties rounded to even", async () => {
  const written = async (timebase: Timebase): Promise<string> => {
    const { bytes } = await encodeWShard({ id: "e", length: 0, timebase });
    const text = new TextDecoder().decode(await (await openWShard(bytes)).block("meta/episode").raw());
    return /"timebase":(\{.*?\})/.exec(text)![1]!;
  };
  assert.equal(await written({ type: "ticks", tickHz: 30 }), '{"dt_ns":33333333,"tick_hz":30.0,"type":"ticks"}');
  assert.equal(await written({ type: "ticks", tickHz: 4e8 }), '{"dt_ns":2,"tick_hz":400000000.0,"type":"ticks"}');
  assert.equal(await written({ type: "ticks", tickHz: 1e12 }), '{"tick_hz":1000000000000.0,"type":"ticks"}');
  assert.equal(await written({ type: "ticks", dtNs: 2n ** 60n }), '{"dt_ns":1152921504606846976,"type":"ticks"}');
  assert.equal(await written({ type: "ticks" }), '{"type":"ticks"}');
});

test("older names of members, and channels as a map", async () => {
  const episode = await loadWShard(made({ episode: { id: "old", length_t: 4 } }).build());
  assert.deepEqual([episode.id, episode.envId, episode.length], ["old", "", 4]);
  const mapped = await loadWShard(made({ channels: { "signal/s": { dtype: "f32", shape: [2] } } }).build());
  assert.deepEqual([mapped.observations.get("s")!.id, mapped.observations.get("s")!.shape], ["s", [4, 2]]);
});

test("undeclared blocks stay bytes, and are written back unchanged", async () => {
  const before = made({ channels: null }).build();
  const episode = await loadWShard(before);
  const state = episode.observations.get("s")!;
  assert.deepEqual([state.dtype, state.shape, state.isDeclared], ["u8", [32], false]);
  assert.deepEqual((await encodeWShard(episode)).bytes, before);
});

test("step ranges with inclusive and exclusive ends", async () => {
  const place = async (members: object): Promise<unknown> =>
    (await loadWShard(made({ episode: { ...EPISODE, ...members } }).build())).chunk;
  assert.equal(await place({ timestep_range: [0, 4] }), null);
  assert.deepEqual(await place({ chunk_index: 2, total_chunks: 5, timestep_range: [8, 11] }), {
    index: 2,
    total: 5,
    firstStep: 8,
  });
  assert.deepEqual(await place({ timestep_range: [8, 12] }), { index: null, total: null, firstStep: 8 });
});

test("lanes have the type of the longest matching channel whose size fits", async () => {
  const channels = [
    { id: "a", dtype: "f32", shape: [2] },
    { id: "a/b", dtype: "u8", shape: [8] },
  ];
  const lanes = {
    "omen/a/b/m": new Uint8Array(32),
    "omen/a/m/n": new Uint8Array(32),
    "uncert/a/m/std": new Uint8Array(31),
  };
  const latent = { "omen/latent_action/m": new Uint8Array(32), "omen/latent_action_codebook/m": new Uint8Array(16) };
  const episode = await loadWShard(made({ channels: { channels } }, { ...lanes, ...latent }).build());
  const shown = [...episode.omens, ...episode.uncertainties].map(([name, item]) => [name, item.dtype, item.shape]);
  assert.deepEqual(shown, [
    ["a/b/m", "u8", [4, 8]],
    ["a/m/n", "f32", [4, 2]],
    ["latent_action/m", "f32", [4, 2]],
    ["latent_action_codebook/m", "i32", [4]],
    ["a/m/std", "u8", [31]],
  ]);
});

test("declared lanes stay declared, even if the name implies the type", async () => {
  const channels = [{ id: "s", dtype: "f32", shape: [2] }];
  const lanes = [{ id: "s/m", dtype: "f32", shape: [2], signal_block: "omen/s/m" }];
  const before = made({ channels: { channels, lanes } }, { "omen/s/m": new Uint8Array(32) }).build();
  assert.deepEqual((await encodeWShard(await loadWShard(before))).bytes, before);
});

test("variants of other writers: zeros between names, no flags, no checksums", async () => {
  const raw = new RawFile({ "meta/episode": json({ episode_id: "e", length_T: 0 }), "x/y": Uint8Array.of(1, 2, 3) });
  raw.header.flags = 0;
  raw.names[0] = Uint8Array.of(...raw.names[0]!, 0);
  raw.entries[1]!.nameAt += 1;
  raw.entries[1]!.checksum = 0;
  const file = await openWShard(raw.build());
  assert.deepEqual(file.blocks, ["meta/episode", "x/y"]);
  assert.deepEqual([...(await file.block("x/y").raw())], [1, 2, 3]);
});

test("the default compression of the header", async () => {
  const plain = new Uint8Array(400).fill(7);
  const raw = new RawFile({ "meta/episode": json({ episode_id: "e", length_T: 0 }), "x/y": compressLz4(plain) });
  raw.header.codec = 2;
  Object.assign(raw.entries[1]!, { flags: 1, size: 400n, checksum: crc32c(plain) });
  assert.deepEqual(await (await openWShard(raw.build())).block("x/y").raw(), plain);
});

test("a series with another declared type is read by block only", async () => {
  const channels = [{ id: "r", dtype: "f64", shape: [], signal_block: "reward" }];
  const bytes = made({ channels: { channels } }, { reward: new Uint8Array(32) }).build();
  await assert.rejects(loadWShard(bytes), { kind: "unsupported", message: /reward/ });
  assert.equal((await (await openWShard(bytes)).block("reward").read()).dtype, "f64");
});

test("written files satisfy the strictest reader", async () => {
  const noise = Uint8Array.from({ length: 300 }, (_, at) => (at * at * 31 + at * 7) ^ (at >> 1));
  const empty = channel("empty", new Float32Array(0), [0]);
  const episode: EpisodeInit = {
    ...fullEpisode(),
    extra: {
      none: { data: new Uint8Array(0) },
      nothing: { data: new Uint8Array(0) },
      noise: { data: noise },
      tiny: { data: new Uint8Array(63) },
    },
  };
  const bare: EpisodeInit = { id: "none", length: 0, observations: { empty } };
  for (const init of [episode, bare]) {
    for (const alignment of [0, 16, 32, 64] as const) {
      for (const compression of ["none", "zstd", "lz4"] as const) {
        await checkStrictly((await encodeWShard(init, { alignment, compression })).bytes, alignment);
      }
    }
  }
  const { bytes } = await encodeWShard(episode, { compression: "lz4" });
  const file = await openWShard(bytes);
  assert.deepEqual(
    ["tiny", "noise", "meta/channels", "signal/cam0/rgb"].map((name) => file.block(name).entry.codec),
    ["none", "none", "none", "lz4"],
  );
});

async function checkStrictly(bytes: Uint8Array, alignment: number): Promise<void> {
  const view = new DataView(bytes.buffer);
  const [count, names, data] = [
    view.getUint32(12, true),
    Number(view.getBigUint64(16, true)),
    Number(view.getBigUint64(24, true)),
  ];
  assert.equal(view.getUint16(6, true), 0x00a2);
  assert.equal(names, 64 + 48 * count);
  assert.ok(bytes.subarray(48, 64).every((byte) => byte === 0));
  const file = await openWShard(bytes);
  let [end, before] = [data, -1];
  for (const name of file.blocks) {
    const { offset, storedBytes, sizeBytes, codec } = file.block(name).entry;
    assert.ok(offset >= end && offset > before && (alignment === 0 || offset % alignment === 0), name);
    assert.ok(
      bytes.subarray(end, offset).every((byte) => byte === 0),
      name,
    );
    assert.ok(codec === "none" || (storedBytes < sizeBytes && sizeBytes >= 64), name);
    [end, before] = [offset + storedBytes, offset];
  }
  assert.equal(end, bytes.length);
}

test("attributes, content types and tags may be changed", async () => {
  const loaded = await loadWShard((await encodeWShard(fullEpisode())).bytes);
  const state = loaded.observations.get("state")!;
  const observations = new Map(loaded.observations).set("state", { ...state, attributes: { unit: "rad" } });
  const extra = new Map(loaded.extra).set("vendor/blob", { data: Uint8Array.of(9), contentType: 5, tags: 6 });
  const again = await loadWShard((await encodeWShard({ ...loaded, observations, extra })).bytes);
  assert.deepEqual(again.observations.get("state")!.attributes, { unit: "rad" });
  assert.deepEqual(again.extra.get("vendor/blob"), { data: Uint8Array.of(9), contentType: 5, tags: 6 });
  assert.deepEqual([...again.observations.keys()], [...loaded.observations.keys()]);
});

test("a changed array does not affect the next read", async () => {
  const file = await openWShard(new Blob([(await encodeWShard(fullEpisode())).bytes as Uint8Array<ArrayBuffer>]));
  const first = await file.block("signal/state").read();
  const expected = [...first.data];
  first.data.fill(0 as never);
  assert.deepEqual([...(await file.block("signal/state").read()).data], expected);
});
