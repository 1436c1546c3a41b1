/** If this fails, a frame of a video is read from other bytes, or a damaged index is believed. */

import assert from "node:assert/strict";
import test from "node:test";

import { crc32c } from "../src/digests.js";
import { parseFrames } from "../src/frame-index.js";
import { FrameIndex, framesBlock, openWShard, type FrameEntry } from "../src/index.js";
import { goldenPath, noGolden } from "./scenes.js";

function entry(timeNs: number, notes: Partial<FrameEntry> = {}): FrameEntry {
  return { offset: 0, sizeBytes: 4, checksum: 0, timeNs: BigInt(timeNs), isKey: false, isHidden: false, ...notes };
}

const key = { isKey: true };
/** Two groups in decoding order; the second one has a frame that is shown before its key frame. */
const ENTRIES = [
  entry(0, key),
  entry(30),
  entry(10),
  entry(20, { isHidden: true }),
  entry(60, key),
  entry(50),
  entry(70),
];

test("frames are numbered in the order they are shown", () => {
  const index = new FrameIndex("h264", Uint8Array.of(1, 2), ENTRIES);
  assert.equal(index.length, 6);
  assert.deepEqual([...index.timesNs], [0n, 10n, 30n, 50n, 60n, 70n]);
  assert.deepEqual(
    [0, 1, 2, 3, 4, 5].map((frame) => index.entryOf(frame)),
    [0, 2, 1, 5, 4, 6],
  );
  assert.deepEqual([...index.groupNumbers], [0, 0, 0, 0, 1, 1]);
  assert.deepEqual(
    [index.entrySpan(1, 1), index.entrySpan(3, 4), index.entrySpan(4, 5)],
    [
      [0, 3],
      [0, 6],
      [4, 7],
    ],
  );
  assert.throws(() => index.entryOf(6), { kind: "bad_input" });
  assert.throws(() => index.entrySpan(2, 1), { kind: "bad_input" });
  const again = parseFrames(index.encode(4), 4);
  assert.deepEqual([again.codec, again.extradata, again.entries], ["h264", Uint8Array.of(1, 2), ENTRIES]);
  assert.throws(() => index.encode(3), { kind: "bad_input" });
});

test("indexes that break a rule are refused", () => {
  const good = new FrameIndex("png", new Uint8Array(0), [entry(0, key), entry(1, key)]).encode(4);
  const at = (offset: number, byte: number): Uint8Array => {
    const data = good.slice();
    data[offset] = byte;
    return data;
  };
  const rows = 32 + 3;
  const bad: readonly (readonly [string, Uint8Array])[] = [
    ["corrupt", good.subarray(0, 31)],
    ["corrupt", good.subarray(0, good.length - 1)],
    ["corrupt", at(0, 0)],
    ["unsupported", at(4, 2)],
    ["unsupported", at(24, 1)],
    ["limit_exceeded", at(14, 1)],
    ["limit_exceeded", at(16, 0)],
    ["corrupt", at(32, 200)],
    ["corrupt", at(rows, 1)],
    ["unsupported", at(rows + 24, 5)],
    ["unsupported", at(rows + 28, 1)],
    ["corrupt", at(rows + 32 + 16, 0)],
    ["corrupt", at(rows + 24, 0)],
    ["corrupt", at(rows + 32 + 24, 0)],
  ];
  for (const [number, [kind, data]] of bad.entries()) {
    assert.throws(() => parseFrames(data, 4), { kind }, String(number));
  }
});

test("the bytes of a frame are verified", { skip: noGolden }, async () => {
  const file = await openWShard(goldenPath("frames.wshard"));
  const block = file.block("signal/cam");
  const index = await file.frameIndex("signal/cam");
  for (const frame of index.entries) {
    const data = await block.frameBytes(frame);
    assert.deepEqual([data.length, crc32c(data)], [frame.sizeBytes, frame.checksum]);
    await assert.rejects(block.frameBytes({ ...frame, checksum: frame.checksum ^ 1 }), { kind: "corrupt" });
    await assert.rejects(block.frameBytes({ ...frame, offset: block.entry.sizeBytes }), { kind: "corrupt" });
  }
  assert.equal(framesBlock("signal/cam"), "frames/signal/cam");
  await assert.rejects(file.frameIndex("meta/episode"), { kind: "not_found" });
  await file.close();
});
