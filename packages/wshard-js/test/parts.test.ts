/** If this fails, a building block of the library is wrong: a number, a text, a codec. */

import assert from "node:assert/strict";
import test from "node:test";

import fc from "fast-check";

import { compareText } from "../src/bytes.js";
import { fromNumbers, toNumbers, type Json } from "../src/index.js";
import { decodeObject } from "../src/json-read.js";
import { encodeJson } from "../src/json-write.js";
import { compressLz4, decompressLz4 } from "../src/lz4.js";
import { compressZstd, decompressZstd } from "../src/zstd.js";

const text = (value: string): Uint8Array => new TextEncoder().encode(value);
const spelled = (value: Json): string => new TextDecoder().decode(encodeJson(value));

/** Runs and noise, for input with and without matches. */
const blobs = fc
  .array(fc.tuple(fc.uint8Array({ minLength: 1, maxLength: 40 }), fc.integer({ min: 1, max: 400 })), { maxLength: 8 })
  .map(
    (runs) => new Uint8Array(Buffer.concat(runs.flatMap(([piece, times]) => new Array<Uint8Array>(times).fill(piece)))),
  );

test("lz4 round-trips", () => {
  fc.assert(
    fc.property(blobs, (data) => {
      assert.deepEqual(decompressLz4(compressLz4(data), data.length, "it"), data);
    }),
  );
  const zeros = new Uint8Array(1_000_000);
  assert.ok(compressLz4(zeros).length < 5000);
});

test("zstd round-trips", async () => {
  await fc.assert(
    fc.asyncProperty(blobs, fc.integer({ min: 1, max: 12 }), async (data, level) => {
      const packed = await compressZstd(data, level);
      assert.deepEqual(await decompressZstd(packed, data.length, "it"), data);
      assert.deepEqual(await compressZstd(data, level), packed);
    }),
    { numRuns: 40 },
  );
});

test("damaged streams never decode to wrong lengths", async () => {
  await fc.assert(
    fc.asyncProperty(blobs, fc.nat(), fc.nat(255), async (data, place, byte) => {
      for (const [pack, unpack] of [
        [compressLz4, decompressLz4],
        [(plain: Uint8Array) => compressZstd(plain, 3), decompressZstd],
      ] as const) {
        const packed = Uint8Array.from(await pack(data));
        packed[place % packed.length] = byte;
        try {
          assert.equal((await unpack(packed, data.length, "it")).length, data.length);
        } catch (error) {
          assert.match((error as { kind: string }).kind, /corrupt|unsupported/);
        }
      }
    }),
  );
});

test("numbers are formatted like in Python", () => {
  const cases: readonly (readonly [Json, string])[] = [
    [0, "0"],
    [-0, "-0.0"],
    [1, "1"],
    [-7, "-7"],
    [2 ** 53 - 1, "9007199254740991"],
    [2 ** 53, "9007199254740992.0"],
    [2n ** 64n, "18446744073709551616"],
    [0.5, "0.5"],
    [1.5e15, "1500000000000000"],
    [123456789012345.6, "123456789012345.6"],
    [1e16, "1e+16"],
    [1.25e22, "1.25e+22"],
    [1e300, "1e+300"],
    [0.0001, "0.0001"],
    [0.00001, "1e-05"],
    [0.000123, "0.000123"],
    [-1.5e-7, "-1.5e-07"],
    [5e-324, "5e-324"],
    [1.7976931348623157e308, "1.7976931348623157e+308"],
  ];
  for (const [value, expected] of cases) {
    assert.equal(spelled(value), expected);
  }
});

test("texts are formatted and ordered like in RFC 8785", () => {
  assert.equal(
    spelled('"\\\b\t\n\f\r\u0001\u001f\u007f/é😀\u2028'),
    '"\\"\\\\\\b\\t\\n\\f\\r\\u0001\\u001f\u007f/é😀\u2028"',
  );
  assert.equal(spelled({ "😀": 1, "\uffff": 2, a: 3, "": 4 }), '{"":4,"a":3,"\uffff":2,"😀":1}');
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), fc.string({ unit: "grapheme" }), (left, right) => {
      assert.equal(Math.sign(compareText(left, right)), Buffer.compare(text(left), text(right)));
    }),
  );
});

test("JSON is read like JSON.parse reads it, if both accept it", () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 8 }), fc.constantFrom(0, 1, 4), (source, indent) => {
      const document = JSON.stringify({ it: JSON.parse(source) as unknown }, null, indent);
      const read = decodeObject(text(document), "it") as { readonly it: unknown };
      const plain = JSON.stringify(read.it, (_, value: unknown) => (typeof value === "bigint" ? Number(value) : value));
      assert.equal(plain, JSON.stringify(JSON.parse(source)));
    }),
  );
  const odd = decodeObject(text('{"__proto__":{"a":1},"b":9007199254740993,"c":-0,"d":"\\ud83d\\ude00"}'), "it");
  assert.deepEqual(Object.keys(odd), ["__proto__", "b", "c", "d"]);
  assert.deepEqual([odd["b"], Object.is(odd["c"], 0), odd["d"]], [9007199254740993n, true, "😀"]);
  assert.equal(spelled(odd), '{"__proto__":{"a":1},"b":9007199254740993,"c":0,"d":"😀"}');
});

test("formatted values read back, and are formatted the same again", () => {
  const documents = ['{"a":[1.0,1,1e5,-0.0,1E-7],"b":{"c":0.1}}', '{"big":123456789012345678901234567890}'];
  const expected = ['{"a":[1.0,1,100000.0,-0.0,1e-07],"b":{"c":0.1}}', documents[1]];
  documents.forEach((document, at) => assert.equal(spelled(decodeObject(text(document), "it")), expected[at]));
});

test("every f16 and bf16 round-trips through its number", () => {
  const bits = Uint16Array.from({ length: 65_536 }, (_, at) => at);
  for (const dtype of ["f16", "bf16"] as const) {
    const numbers = toNumbers({ dtype, shape: [65_536], data: bits });
    const again = fromNumbers(dtype, [65_536], numbers);
    numbers.forEach((value, at) => {
      assert.ok(Number.isNaN(value) || again.data[at] === at, `${dtype} ${at}: ${value}`);
    });
  }
  assert.deepEqual(
    [...toNumbers({ dtype: "f16", shape: [4], data: Uint16Array.of(0x3c00, 0xc000, 0x7bff, 1) })],
    [1, -2, 65504, 2 ** -24],
  );
  assert.deepEqual([...toNumbers({ dtype: "bf16", shape: [2], data: Uint16Array.of(0x3f80, 0xc040) })], [1, -3]);
});

test("numbers are rounded to the nearest, ties to even", () => {
  const halves = fromNumbers("f16", [6], [1 + 2 ** -11, 1 + 3 * 2 ** -11, 65519.99, 65520, 2 ** -25, -1e9]);
  assert.deepEqual([...halves.data], [0x3c00, 0x3c02, 0x7bff, 0x7c00, 0, 0xfc00]);
  const brains = fromNumbers("bf16", [4], [1 + 2 ** -8, 1 + 2 ** -8 + 2 ** -40, 1 + 3 * 2 ** -8, Infinity]);
  assert.deepEqual([...brains.data], [0x3f80, 0x3f81, 0x3f82, 0x7f80]);
});

test("integers that do not fit are refused", () => {
  assert.deepEqual([...fromNumbers("i64", [2], [-5, 2 ** 60]).data], [-5n, 2n ** 60n]);
  for (const [dtype, value] of [
    ["u8", 256],
    ["i8", -129],
    ["u32", 0.5],
    ["i64", 2 ** 63],
    ["u64", -1],
    ["i32", NaN],
  ] as const) {
    assert.throws(() => fromNumbers(dtype, [1], [value]), { kind: "bad_input" });
  }
});
