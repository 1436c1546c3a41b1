/** If this fails, a viewer of episodes shows the wrong channel, time or frame, or cannot read a protected file. */

import assert from "node:assert/strict";
import test from "node:test";

import { crc32c, prepareDigests } from "../src/digests.js";
import {
  channel,
  decoderConfig,
  encodeWShard,
  FrameIndex,
  framesBlock,
  loadWShard,
  openWShard,
  type EpisodeInit,
  type FetchLike,
  type FrameEntry,
} from "../src/index.js";
import { bytesOf, CountingSource } from "./scenes.js";

await prepareDigests();

const FRAMES = [Uint8Array.of(1, 2, 3), Uint8Array.of(4), Uint8Array.of(5, 6), Uint8Array.of(7, 8, 9, 10)];
/** Shown in the order 0, 2, 1, 3; the last one begins a group. */
const TIMES = [0n, 100n, 50n, 150n];

function indexed(codec = "h264", extradata: Uint8Array = new Uint8Array(0)): FrameIndex {
  let offset = 0;
  const entries = FRAMES.map((data, number): FrameEntry => {
    const entry = { offset, sizeBytes: data.length, checksum: crc32c(data), timeNs: TIMES[number]! };
    offset += data.length;
    return { ...entry, isKey: number === 0 || number === 3, isHidden: false };
  });
  return new FrameIndex(codec, extradata, entries);
}

function scene(): EpisodeInit {
  const cam = Uint8Array.from(FRAMES.flatMap((data) => [...data]));
  return {
    id: "shown",
    length: 4,
    timebase: { type: "ticks", tickHz: 30 },
    observations: {
      cam: channel("cam", cam, [], { attributes: { encoding: "h264", frame_count: 4 } }),
      joint: channel("joint", new Float32Array(8), [2]),
      fast: channel("fast", new Float32Array(16), [], { attributes: { sampling_rate_hz: 120 } }),
    },
    rewards: new Float32Array(4),
    extra: { [framesBlock("signal/cam")]: { data: indexed().encode(cam.length) } },
  };
}

test("channels are listed with their types and rates, before any values are read", async () => {
  const source = new CountingSource((await encodeWShard(scene())).bytes);
  const file = await openWShard(source);
  const found = await file.channels();
  assert.deepEqual(
    found.map(({ block, lane, id, dtype, shape, rows, rateHz, encoding, hasFrames }) => [
      ...[block, lane, id, dtype, shape, rows, rateHz, encoding, hasFrames],
    ]),
    [
      ["signal/cam", "signal", "cam", "u8", [], 10, null, "h264", true],
      ["signal/joint", "signal", "joint", "f32", [2], 4, 30, null, false],
      ["signal/fast", "signal", "fast", "f32", [], 16, 120, null, false],
      ["reward", "series", "reward", "f32", [], 4, 30, null, false],
    ],
  );
  assert.equal(source.asked.length, 1, "the first request covers the metadata");
});

test("times of steps at a rate, by a step in nanoseconds, and as recorded", async () => {
  const base = { id: "e", length: 4 };
  const timestampsNs = BigInt64Array.of(5n, 7n, 2n ** 62n, -1n);
  const cases = [
    [{ ...base, timebase: { type: "ticks", tickHz: 30 } }, [33333333n, 66666667n]],
    [{ ...base, timebase: { type: "ticks", dtNs: 7n } }, [7n, 14n]],
    [{ ...base, timebase: { type: "timestamps_ns" }, timestampsNs }, [7n, 2n ** 62n]],
  ] as const;
  for (const [init, expected] of cases) {
    const file = await openWShard((await encodeWShard(init)).bytes);
    assert.deepEqual([...(await file.timesNs(1, 3))], expected);
    await assert.rejects(file.timesNs(1, 5), { kind: "bad_input" });
  }
});

test("the frame at a time is the last one shown by then", () => {
  const index = indexed();
  const at = [-5n, 0, 49.5, 50n, 99n, 100, 149n, 150n, 2n ** 62n].map((time) => index.frameAt(time));
  assert.deepEqual(at, [0, 0, 0, 1, 1, 2, 2, 3, 3]);
  assert.throws(() => new FrameIndex("png", new Uint8Array(0), []).frameAt(0), { kind: "bad_input" });
});

test("frames are read with those that they need, in one request", async () => {
  const source = new CountingSource((await encodeWShard(scene())).bytes);
  const file = await openWShard(source);
  const [index, block] = [await file.frameIndex("signal/cam"), file.block("signal/cam")];
  source.asked.length = 0;
  const frames = await block.readFrames(index, 1);
  assert.deepEqual(
    frames.map(({ data, timeNs }) => [[...data], timeNs]),
    [0, 1, 2].map((number) => [[...FRAMES[number]!], TIMES[number]]),
  );
  assert.equal(source.asked.length, 0, "a small file is in memory from the first request on");
  assert.deepEqual(
    (await block.readFrames(index, 3)).map(({ data, isKey }) => [[...data], isKey]),
    [[[7, 8, 9, 10], true]],
  );
  await assert.rejects(block.readFrames(index, 0, 4), { kind: "bad_input" });
  const damaged = (await encodeWShard(scene())).bytes;
  damaged[(await openWShard(damaged)).block("signal/cam").entry.offset + 3]! ^= 1;
  await assert.rejects((await openWShard(damaged)).block("signal/cam").readFrames(index, 1), { kind: "corrupt" });
});

test("headers, credentials and a signal go with every request", async () => {
  const { bytes } = await encodeWShard({ ...scene(), extra: { big: { data: new Uint8Array(200_000) } } });
  const asked: Parameters<FetchLike>[1][] = [];
  const fetch: FetchLike = async (_url, init) => {
    asked.push(init);
    const [start, end] = /bytes=(\d+)-(\d+)/.exec(init.headers["Range"]!)!.slice(1).map(Number);
    const headers = { "Content-Range": `bytes ${start}-${end}/${bytes.length}` };
    return new Response(bytes.slice(start, end! + 1) as Uint8Array<ArrayBuffer>, { status: 206, headers });
  };
  const { signal } = new AbortController();
  const http = { fetch, headers: { Authorization: "Bearer x" }, credentials: "include", signal } as const;
  const file = await openWShard("https://lake.example/a.wshard", { http });
  await file.block("signal/joint").read();
  await file.block("big").raw();
  assert.equal((await loadWShard("https://lake.example/a.wshard", { http })).id, "shown");
  assert.ok(asked.length >= 3);
  for (const init of asked) {
    assert.equal(init.headers["Authorization"], "Bearer x");
    assert.deepEqual([init.credentials, init.signal], ["include", signal]);
  }
});

test("decoders of a browser are configured from the extradata", () => {
  const avcC = Uint8Array.of(1, 0x64, 0, 0x28, 0xff);
  assert.deepEqual(decoderConfig(indexed("h264", avcC)), { codec: "avc1.640028", description: avcC });
  const units = Uint8Array.of(0, 0, 0, 1, 0x67, 0x42, 0xc0, 0x1e, 0xd9);
  assert.deepEqual(decoderConfig(indexed("h264", units)), { codec: "avc1.42c01e" });
  const hvcC = Uint8Array.of(1, 1, 0x60, 0, 0, 0, 0x90, 0, 0, 0, 0, 0, 93, 0xf0);
  assert.deepEqual(decoderConfig(indexed("hevc", hvcC)), { codec: "hvc1.1.6.L93.90", description: hvcC });
  assert.deepEqual(decoderConfig(indexed("av1", Uint8Array.of(0x81, 0x08, 0x4c, 0))), { codec: "av01.0.08M.10" });
  for (const codec of ["h264", "hevc", "av1"]) {
    assert.throws(() => decoderConfig(indexed(codec)), { kind: "corrupt" });
  }
  assert.throws(() => decoderConfig(indexed("ffv1")), { kind: "unsupported", hint: /elsewhere/ });
  const images = new FrameIndex("jpeg", new Uint8Array(0), []);
  assert.throws(() => decoderConfig(images), { kind: "unsupported", hint: /createImageBitmap/ });
});

test("a frame that is read alone owns its bytes", async () => {
  const file = await openWShard(new Blob([(await encodeWShard(scene())).bytes as Uint8Array<ArrayBuffer>]));
  const [index, block] = [await file.frameIndex("signal/cam"), file.block("signal/cam")];
  const first = await block.frameBytes(index.entries[0]!);
  first.fill(0);
  assert.deepEqual(bytesOf({ data: await block.frameBytes(index.entries[0]!) }), FRAMES[0]);
});
