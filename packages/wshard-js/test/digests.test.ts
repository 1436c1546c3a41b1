/** If this fails, checksums differ from those of other libraries, so that valid files are refused. */

import assert from "node:assert/strict";
import { test } from "node:test";

import fc from "fast-check";
import { createCRC32 } from "hash-wasm";

import { CASTAGNOLI } from "../src/crc32c.js";
import { crc32c, prepareDigests, RunningCrc32c } from "../src/digests.js";

await prepareDigests();
const library = await createCRC32(CASTAGNOLI);

function expected(data: Uint8Array): number {
  return parseInt(library.init().update(data).digest("hex"), 16);
}

test("CRC-32C equals that of the hashing library, at any length and offset", () => {
  const bytes = fc.uint8Array({ maxLength: 200 });
  fc.assert(
    fc.property(bytes, fc.nat(20), (data, start) => {
      assert.equal(crc32c(data.subarray(start)), expected(data.subarray(start)));
    }),
  );
});

test("CRC-32C of more bytes than its buffer, in one piece and in several", () => {
  const data = Uint8Array.from({ length: 200_003 }, (_, at) => (at * 31 + (at >> 8)) & 255);
  assert.equal(crc32c(data), expected(data));
  const running = new RunningCrc32c();
  for (let at = 0; at < data.length; at += 7919) {
    running.update(data.subarray(at, at + 7919));
  }
  assert.equal(running.value(), expected(data));
});
