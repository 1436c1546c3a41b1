/**
 * If this fails, a reader accepts an invalid file, or crashes on it.
 *
 * One rejected file for each rule of the specification. Each is a valid file with one change and correct checksums, so
 * that only the rule rejects it.
 */

import assert from "node:assert/strict";
import test from "node:test";

import { crc32c, xxh64, xxh64Low } from "../src/digests.js";
import {
  encodeChunkManifest,
  encodeWShard,
  loadChunkManifest,
  loadWShard,
  openWShard,
  validateChunkContinuity,
  WShardError,
  type ChunkManifest,
} from "../src/index.js";
import { compressLz4 } from "../src/lz4.js";
import { readSeekTable } from "../src/seek-table.js";
import { RawFile, type RawEntry } from "./scenes.js";

type Spoil = (file: RawFile) => void;
type Document = Uint8Array | Readonly<Record<string, unknown>>;

const CHANNEL = { id: "s", dtype: "f32", shape: [2] as unknown, signal_block: "signal/s" };
const EPISODE = { episode_id: "e", env_id: "E", length_T: 4 };
const text = (value: string): Uint8Array => new TextEncoder().encode(value);

/** Returns a file of four steps, with one document replaced. */
function validFile(documents: Readonly<Record<string, Document>> = {}): RawFile {
  const found = { wshard: { version: 1 }, episode: EPISODE, channels: { channels: [CHANNEL] }, ...documents };
  const blocks: Record<string, Uint8Array> = {};
  for (const [name, value] of Object.entries(found)) {
    blocks[`meta/${name}`] = value instanceof Uint8Array ? value : text(JSON.stringify(value));
  }
  return new RawFile({
    ...blocks,
    "signal/s": new Uint8Array(32),
    reward: new Uint8Array(16),
    done: new Uint8Array(4),
  });
}

const header =
  (fields: Partial<RawFile["header"]>): Spoil =>
  (file) =>
    void Object.assign(file.header, fields);
const entry =
  (number: number, fields: Partial<RawEntry>): Spoil =>
  (file) =>
    void Object.assign(file.entries[number]!, fields);
const HUGE = 2n ** 62n;

/** Sets another name of the same length, with its hash. */
const renamed =
  (number: number, name: Uint8Array): Spoil =>
  (file) => {
    file.names[number] = name;
    file.entries[number]!.hash = xxh64(name);
  };

/** Replaces the bytes of the last block, `done`, so that nothing else moves. */
const stored =
  (data: Uint8Array, flags: number, size: number): Spoil =>
  (file) => {
    const last = file.entries.at(-1)!;
    file.payloads[file.payloads.length - 1] = data;
    const checksum = crc32c(new Uint8Array(4));
    Object.assign(last, { flags, stored: BigInt(data.length), size: BigInt(size), checksum });
    file.size = Number(last.offset) + data.length;
    file.header.total = BigInt(file.size);
  };

/** Does the same, under a name without a declaration. */
const unknown =
  (data: Uint8Array, flags: number, size: number): Spoil =>
  (file) => {
    renamed(5, text("x/yz"))(file);
    stored(data, flags, size)(file);
  };

interface FrameOptions {
  readonly hasSize?: boolean;
  readonly dictionary?: number;
  readonly reserved?: boolean;
  readonly kind?: number;
}

/** A zstd frame of one raw block. */
function frame(
  data: Uint8Array,
  { hasSize = true, dictionary = 0, reserved = false, kind = 0 }: FrameOptions = {},
): Uint8Array {
  const descriptor = (hasSize ? 0x20 : 0) | (dictionary ? 1 : 0) | (reserved ? 8 : 0);
  const block = 1 | (kind << 1) | (data.length << 3);
  const head = [0x28, 0xb5, 0x2f, 0xfd, descriptor, ...(hasSize ? [] : [0x38]), ...(dictionary ? [dictionary] : [])];
  return Uint8Array.from([
    ...head,
    ...(hasSize ? [data.length] : []),
    block & 255,
    (block >> 8) & 255,
    block >> 16,
    ...data,
  ]);
}

const FOUR = new Uint8Array(4);
const FRAME = frame(FOUR);
const CHECK = xxh64Low(FOUR);
const ROW = [FRAME.length, 4, CHECK];
const join = (...parts: readonly Uint8Array[]): Uint8Array => new Uint8Array(Buffer.concat(parts));

interface Wrong {
  readonly count?: number;
  readonly descriptor?: number;
  readonly magic?: number;
  readonly skippable?: number;
  readonly bytes?: number;
}

function seekable(
  rows: readonly (readonly number[])[],
  wrong: Wrong = {},
  frames: readonly Uint8Array[] = [FRAME],
): Uint8Array {
  const words = (...values: readonly number[]): Uint8Array => new Uint8Array(Uint32Array.from(values).buffer);
  const table = new Uint8Array(Uint32Array.from(rows.flat()).buffer);
  const head = words(wrong.skippable ?? 0x184d2a5e, wrong.bytes ?? table.length + 9);
  const footer = [
    words(wrong.count ?? rows.length),
    Uint8Array.of(wrong.descriptor ?? 0x80),
    words(wrong.magic ?? 0x8f92eab1),
  ];
  return join(...frames, head, table, ...footer);
}

const CORRUPT = "corrupt";
const UNSUPPORTED = "unsupported";
const LIMIT = "limit_exceeded";

const CONTAINER: Readonly<Record<string, readonly [Spoil, RegExp, string]>> = {
  magic: [header({ magic: "SHRE" }), /begins with/, CORRUPT],
  version: [header({ version: 3 }), /version 3/, UNSUPPORTED],
  role: [header({ role: 1 }), /role 0x01/, UNSUPPORTED],
  "big-endian": [header({ flags: 0x00a4 }), /big-endian/, UNSUPPORTED],
  "alignment of the header": [header({ alignment: 8 }), /alignment 8/, CORRUPT],
  "default compression": [header({ codec: 3 }), /compression 3/, CORRUPT],
  "entry size": [header({ entrySize: 56 }), /56 bytes/, UNSUPPORTED],
  "total too small": [header({ total: 64n }), /promises 64/, CORRUPT],
  "total too large": [header({ total: HUGE }), /promises/, CORRUPT],
  "count beyond the file": [header({ count: 900_000 }), /do not fit/, CORRUPT],
  "count beyond the limit": [header({ count: 2 ** 32 - 1 }), /entries/, LIMIT],
  "count too small": [header({ count: 5 }), /between the index and the names/, CORRUPT],
  "names before the index ends": [header({ names: 100n }), /do not fit/, CORRUPT],
  "names beyond the file": [header({ names: HUGE }), /do not fit/, CORRUPT],
  "data before names": [header({ data: 64n }), /do not fit/, CORRUPT],
  "data beyond the file": [header({ data: HUGE }), /do not fit/, CORRUPT],
  "schema beyond the file": [header({ schema: HUGE }), /do not fit/, CORRUPT],
  "schema beyond the file by one": [
    (file) => void (file.header.schema = file.header.total + 1n),
    /do not fit/,
    CORRUPT,
  ],
  "name outside": [entry(0, { nameAt: 10_000 }), /outside/, CORRUPT],
  "empty name": [entry(0, { nameBytes: 0 }), /outside/, CORRUPT],
  "name hash": [entry(0, { hash: 1n }), /hash/, CORRUPT],
  "name not UTF-8": [renamed(4, Uint8Array.of(0x72, 0x65, 0x77, 0x61, 0xff, 0xff)), /not UTF-8/, CORRUPT],
  "unknown flag": [entry(4, { flags: 16 }), /flags/, UNSUPPORTED],
  "codec without compressed": [entry(4, { flags: 2 }), /not compressed/, CORRUPT],
  "both codecs": [entry(4, { flags: 7 }), /both/, CORRUPT],
  "compressed by nothing": [entry(4, { flags: 1 }), /nothing says how/, CORRUPT],
  "chunked but plain": [entry(4, { flags: 8 }), /not compressed/, CORRUPT],
  "chunked lz4": [entry(4, { flags: 1 | 4 | 8 }), /only zstd/, UNSUPPORTED],
  "offset before the data": [entry(4, { offset: 64n }), /outside/, CORRUPT],
  "offset beyond the file": [entry(4, { offset: HUGE }), /outside/, CORRUPT],
  "offset that wraps around": [entry(4, { offset: 2n ** 64n - 64n }), /outside/, CORRUPT],
  "offset not aligned": [(file) => void (file.entries[4]!.offset += 4n), /not aligned/, CORRUPT],
  "blocks overlap": [(file) => void (file.entries[4]!.offset -= 64n), /overlap/, CORRUPT],
  "blocks overlap by one": [
    (file) => {
      file.header.alignment = 0;
      file.entries[4]!.offset = file.entries[3]!.offset + 31n;
    },
    /overlap/,
    CORRUPT,
  ],
  "stored beyond the file": [entry(5, { stored: HUGE, size: HUGE }), /outside/, CORRUPT],
  "plain sizes differ": [entry(4, { size: 15n }), /not compressed/, CORRUPT],
  checksum: [entry(4, { checksum: 1 }), /checksum/, CORRUPT],
  "no checksum although promised": [entry(3, { checksum: 0 }), /checksum/, CORRUPT],
  "two blocks of one name": [
    (file) => {
      const { hash, nameAt, nameBytes } = file.entries[4]!;
      Object.assign(file.entries[5]!, { hash, nameAt, nameBytes });
    },
    /same name/,
    CORRUPT,
  ],
  "zstd is not zstd": [stored(text("nonsense"), 3, 4), /zstd/, CORRUPT],
  "zstd of another size": [stored(frame(new Uint8Array(5)), 3, 4), /promises 5/, CORRUPT],
  "zstd cut short": [stored(FRAME.subarray(0, -1), 3, 4), /zstd/, CORRUPT],
  "zstd with a tail": [stored(join(FRAME, text("x")), 3, 4), /follow it/, CORRUPT],
  "two zstd frames": [stored(join(frame(new Uint8Array(2)), frame(new Uint8Array(2))), 3, 4), /zstd/, CORRUPT],
  "zstd without a size, longer": [stored(frame(new Uint8Array(5), { hasSize: false }), 3, 4), /zstd/, CORRUPT],
  "zstd without a size, shorter": [stored(frame(new Uint8Array(3), { hasSize: false }), 3, 4), /3 bytes/, CORRUPT],
  "zstd with a dictionary": [stored(frame(FOUR, { dictionary: 7 }), 3, 4), /dictionary/, UNSUPPORTED],
  "zstd with a reserved bit": [stored(frame(FOUR, { reserved: true }), 3, 4), /corrupt/, CORRUPT],
  "zstd with a reserved block": [stored(frame(FOUR, { kind: 3 }), 3, 4), /unknown type/, CORRUPT],
  "zstd with damage inside": [stored(frame(FOUR, { kind: 2 }), 3, 4), /corrupt/, CORRUPT],
  "zstd of no bytes that is not empty": [unknown(frame(FOUR, { hasSize: false }), 3, 0), /not empty/, CORRUPT],
  "zstd bomb": [stored(FRAME, 3, 2 ** 30), /cannot hold/, CORRUPT],
  "zstd beyond the limit": [stored(FRAME, 3, 2 ** 31), /decoded/, LIMIT],
  "lz4 is not lz4": [stored(new Uint8Array(8).fill(255), 5, 4), /lz4/, CORRUPT],
  "lz4 shorter": [stored(compressLz4(new Uint8Array(3)), 5, 4), /3 bytes/, CORRUPT],
  "lz4 longer": [stored(compressLz4(new Uint8Array(9)), 5, 4), /lz4/, CORRUPT],
  "lz4 of nothing": [unknown(new Uint8Array(0), 5, 0), /lz4/, CORRUPT],
  "lz4 from before the beginning": [unknown(Uint8Array.of(0x10, 1, 9, 0, 0), 5, 20), /9 bytes back/, CORRUPT],
  "lz4 with a match at the end": [unknown(Uint8Array.of(0x10, 1, 1, 0), 5, 5), /does not fit/, CORRUPT],
  "lz4 bomb": [stored(Uint8Array.of(0), 5, 2 ** 20), /cannot hold/, CORRUPT],
  "chunks: no table": [stored(FRAME, 11, 4), /seek table/, CORRUPT],
  "chunks: footer": [stored(seekable([ROW], { magic: 1 }), 11, 4), /ends with/, CORRUPT],
  "chunks: descriptor": [stored(seekable([ROW], { descriptor: 0 }), 11, 4), /ends with/, CORRUPT],
  "chunks: count": [stored(seekable([ROW], { count: 2 ** 31 }), 11, 4), /lists/, CORRUPT],
  "chunks: skippable": [stored(seekable([ROW], { skippable: 1 }), 11, 4), /skippable/, CORRUPT],
  "chunks: table size": [stored(seekable([ROW], { bytes: 8 }), 11, 4), /skippable/, CORRUPT],
  "chunks: stored sum": [stored(seekable([[1, 4, CHECK]]), 11, 4), /sums/, CORRUPT],
  "chunks: decoded sum": [stored(seekable([[FRAME.length, 5, CHECK]]), 11, 4), /sums/, CORRUPT],
  "chunks: empty chunk": [stored(seekable([ROW, [0, 0, 0]]), 11, 4), /empty/, CORRUPT],
  "chunks: checksum": [stored(seekable([[FRAME.length, 4, CHECK ^ 1]]), 11, 4), /checksum/, CORRUPT],
  "chunks: bomb": [unknown(seekable([[FRAME.length, 2 ** 20, 0]]), 11, 2 ** 20), /cannot hold/, CORRUPT],
  "chunks: beyond the limit": [unknown(seekable([[FRAME.length, 2 ** 31, 0]]), 11, 2 ** 31), /decoded/, LIMIT],
};

test("the valid file is accepted", async () => {
  assert.equal((await loadWShard(validFile().build())).length, 4);
  for (const data of [FRAME, frame(FOUR, { hasSize: false })]) {
    assert.equal((await loadWShard(validFile().build(stored(data, 3, 4)))).terminations?.length, 4);
  }
  await loadWShard(validFile().build(stored(compressLz4(FOUR), 5, 4)));
  await loadWShard(validFile().build(stored(seekable([ROW]), 11, 4)));
});

for (const [rule, [spoil, message, kind]] of Object.entries(CONTAINER)) {
  test(`a container that breaks a rule: ${rule}`, async () => {
    await assert.rejects(loadWShard(validFile().build(spoil)), { kind, message });
  });
}

test("a chunk table that promises more than memory can hold", async () => {
  const rows = Array.from({ length: 200_000 }, () => [1, 131_072, 0]);
  const data = seekable(rows, {}, [new Uint8Array(200_000)]);
  await assert.rejects(loadWShard(validFile().build(unknown(data, 11, 200_000 * 131_072))), WShardError);
});

test("a gap before the names", async () => {
  const blocks = { "meta/episode": text('{"episode_id":"e","length_T":0}') };
  assert.equal((await loadWShard(new RawFile(blocks, 4096).build())).id, "e");
  await assert.rejects(loadWShard(new RawFile(blocks, 4097).build()), {
    kind: CORRUPT,
    message: /4097 bytes between/,
  });
  const filled = new RawFile(blocks, 64).build();
  filled[64 + 48 + 5] = 1;
  await assert.rejects(loadWShard(filled), { kind: CORRUPT, message: /is not zero/ });
});

test("names and chunks beyond their limits are refused before they are read", async () => {
  const size = 2 ** 30;
  const fields = header({ count: 0, names: 64n, data: 64n + 100n * 2n ** 20n + 1n, total: BigInt(size) });
  const head = new RawFile({}).build(fields);
  const asked: number[] = [];
  const readRange = (start: number, end: number): Uint8Array => {
    asked.push(end - start);
    const out = new Uint8Array(end - start);
    out.set(head.subarray(start, end));
    return out;
  };
  await assert.rejects(openWShard({ size, readRange }), { kind: LIMIT, message: /names take/ });
  const footer = seekable([], { count: 1_000_001 }).subarray(-9);
  const fetched: number[] = [];
  const reading = readSeekTable(
    {
      name: "x",
      codec: "zstd",
      isChunked: true,
      offset: 0,
      storedBytes: 2 ** 28,
      sizeBytes: 1,
      checksum: 0,
      contentType: 0,
      tags: 0,
    },
    async (start, end) => {
      fetched.push(end - start);
      return footer;
    },
  );
  await assert.rejects(reading, { kind: CORRUPT, message: /lists 1000001/ });
  assert.ok(Math.max(...asked, ...fetched) <= 65_536);
});

test("a window verifies the whole compressed block", async () => {
  const spoiled = validFile().build((file) => {
    stored(FRAME, 3, 4)(file);
    file.entries[5]!.checksum ^= 1;
  });
  const file = await openWShard(spoiled);
  await assert.rejects(file.block("done").window(1, 2), { kind: CORRUPT, message: /checksum/ });
});

const deep = `${"[".repeat(50_000)}${"]".repeat(50_000)}`;
const withChannel = (members: Readonly<Record<string, unknown>>): Document => ({
  channels: [{ ...CHANNEL, ...members }],
});
const METADATA: Readonly<Record<string, readonly [string, Document]>> = {
  "not JSON": ["episode", text("{")],
  "two documents": ["episode", text('{"episode_id":"e","length_T":4}{}')],
  "a byte order mark": ["episode", text('\ufeff{"episode_id":"e","length_T":4}')],
  "not UTF-8": ["episode", Uint8Array.of(0x7b, 0x22, 0xff, 0x22, 0x7d)],
  "not an object": ["episode", text("[]")],
  "a key twice": ["episode", text('{"episode_id":"e","episode_id":"f","length_T":4}')],
  "a key twice, once escaped": ["episode", text('{"episode_id":"e","a":{"b":1,"\\u0062":2},"length_T":4}')],
  NaN: ["episode", text('{"episode_id":"e","length_T":4,"metadata":{"a":NaN}}')],
  "a number beyond float64": ["episode", text('{"episode_id":"e","length_T":4,"metadata":{"a":1e999}}')],
  "an integer beyond float64": [
    "episode",
    text(`{"episode_id":"e","length_T":4,"metadata":{"a":1${"0".repeat(400)}}}`),
  ],
  "a number of many digits": ["episode", text(`{"episode_id":"e","length_T":${"9".repeat(5000)}}`)],
  "a number with a leading zero": ["episode", text('{"episode_id":"e","length_T":04}')],
  "a lone surrogate": ["episode", text('{"episode_id":"\\ud800","length_T":4}')],
  "a control character": ["episode", text('{"episode_id":"\u0001","length_T":4}')],
  "an unknown escape": ["episode", text('{"episode_id":"\\x41","length_T":4}')],
  deep: ["episode", text(`{"episode_id":"e","length_T":4,"x":${deep}}`)],
  "deeper by one": ["episode", text(`{"episode_id":"e","length_T":4,"x":${"[".repeat(32)}1${"]".repeat(32)}}`)],
  "no id": ["episode", { length_T: 4 }],
  "no length": ["episode", { episode_id: "e" }],
  "negative length": ["episode", { ...EPISODE, length_T: -4 }],
  "length of a boolean": ["episode", { ...EPISODE, length_T: true }],
  "length of a fraction": ["episode", text('{"episode_id":"e","length_T":4.0}')],
  "huge length": ["episode", { ...EPISODE, length_T: 2 ** 50 }],
  "another length": ["episode", { ...EPISODE, length_T: 5 }],
  env_id: ["episode", { ...EPISODE, env_id: 5 }],
  metadata: ["episode", { ...EPISODE, metadata: [] }],
  timebase: ["episode", { ...EPISODE, timebase: 30 }],
  "timebase type": ["episode", { ...EPISODE, timebase: { type: "moons" } }],
  "timebase without timestamps": ["episode", { ...EPISODE, timebase: { type: "timestamps_ns" } }],
  "negative rate": ["episode", { ...EPISODE, timebase: { type: "ticks", tick_hz: -1 } }],
  "step of a fraction": ["episode", { ...EPISODE, timebase: { type: "ticks", dt_ns: 1.5 } }],
  "range of another length": ["episode", { ...EPISODE, timestep_range: [0, 9] }],
  "range that is too short": ["episode", { ...EPISODE, timestep_range: [0, 2] }],
  "range of one": ["episode", { ...EPISODE, timestep_range: [0] }],
  "chunk index": ["episode", { ...EPISODE, chunk_index: -1 }],
  "shard version": ["wshard", { version: 2 }],
  "shard version of a boolean": ["wshard", { version: true }],
  "shard version of nothing": ["wshard", { version: null }],
  endianness: ["wshard", { version: 1, endianness: "big" }],
  channels: ["channels", { channels: {} }],
  "a channel": ["channels", { channels: [5] }],
  "channel id": ["channels", withChannel({ id: 5 })],
  "channel block": ["channels", withChannel({ signal_block: 5 })],
  "a channel twice": ["channels", { channels: [CHANNEL, CHANNEL] }],
  dtype: ["channels", withChannel({ dtype: "f31" })],
  "dtype of a built-in member": ["channels", withChannel({ dtype: "toString" })],
  "no dtype": ["channels", withChannel({ dtype: null })],
  "dtype of another size": ["channels", withChannel({ dtype: "f64" })],
  "negative shape": ["channels", withChannel({ shape: [-2] })],
  "shape of a boolean": ["channels", withChannel({ shape: [true, 2] })],
  "shape of fractions": ["channels", text('{"channels":[{"id":"s","dtype":"f32","shape":[2.0]}]}')],
  "shape is a number": ["channels", withChannel({ shape: 2 })],
  "huge shape": ["channels", withChannel({ shape: new Array(16).fill(2 ** 31 - 1) })],
  "too many dimensions": ["channels", withChannel({ shape: new Array(17).fill(1) })],
  "shape of zero": ["channels", withChannel({ shape: [0] })],
};

for (const [rule, [name, document]] of Object.entries(METADATA)) {
  test(`metadata that breaks a rule: ${rule}`, async () => {
    await assert.rejects(loadWShard(validFile({ [name]: document }).build()), {
      kind: /^(corrupt|unsupported)$/,
    });
  });
}

test("depth and digits at their limits are accepted", async () => {
  const nested = `${"[".repeat(31)}1${"]".repeat(31)}`;
  await loadWShard(
    validFile({ episode: text(`{"episode_id":"e","length_T":4,"x":${nested},"y":1${"0".repeat(308)}}`) }).build(),
  );
});

test("no metadata at all", async () => {
  await assert.rejects(loadWShard(new RawFile({ x: text("y") }).build()), { kind: CORRUPT, message: /meta\/episode/ });
});

test("a file cut short", async () => {
  const whole = validFile().build();
  for (let size = 0; size < whole.length; size += 7) {
    await assert.rejects(loadWShard(whole.subarray(0, size)), { kind: CORRUPT });
  }
});

test("a source that returns too few bytes", async () => {
  const whole = validFile().build();
  const source = { size: whole.length, readRange: (start: number, end: number) => whole.subarray(start, end - 1) };
  await assert.rejects(openWShard(source), { kind: CORRUPT, message: /gave/ });
});

const CHUNK = {
  chunk_index: 0,
  uri: "e_chunk_0000.wshard",
  sha256: "0".repeat(64),
  timestep_range: [0, 3],
  length_T: 4,
  total_chunks: 1,
};
const MANIFEST = { episode_id: "e", env_id: "E", total_chunks: 1, total_timesteps: 4, chunks: [CHUNK] };

function manifest(
  change: Readonly<Record<string, unknown>>,
  chunk: Readonly<Record<string, unknown>> = {},
): Uint8Array {
  const document = { ...MANIFEST, chunks: [{ ...CHUNK, ...chunk }], ...change };
  return new RawFile({ "meta/manifest": text(JSON.stringify(document)) }).build(header({ role: 4 }));
}

test("manifests that break a rule", async () => {
  validateChunkContinuity(await loadChunkManifest(manifest({})));
  const forms = [
    { chunks: 5 },
    { chunks: [5] },
    { episode_id: 5 },
    { env_id: null },
    { total_chunks: -1 },
    { total_timesteps: "4" },
  ];
  const chunks = ["", "a/b", "..", "c:x", "a\\b", "\0", "x".repeat(201)].map((uri) => ({ uri }));
  const others = [
    { sha256: "0" },
    { timestep_range: [0] },
    { timestep_range: [0, -1] },
    { length_T: 1.5 },
    { chunk_index: null },
  ];
  for (const data of [
    ...forms.map((form) => manifest(form)),
    ...[...chunks, ...others].map((chunk) => manifest({}, chunk)),
  ]) {
    await assert.rejects(loadChunkManifest(data), { kind: CORRUPT });
  }
  const breaks = [{ chunk_index: 1 }, { timestep_range: [1, 4] }, { length_T: 3 }, { total_chunks: 2 }];
  for (const chunk of breaks) {
    const loaded = await loadChunkManifest(manifest({}, chunk));
    assert.throws(() => validateChunkContinuity(loaded), { kind: CORRUPT });
  }
  for (const change of [
    { total_timesteps: 5 },
    { total_chunks: 2 },
    { chunks: [], total_chunks: 0, total_timesteps: 0 },
    { chunks: [CHUNK, CHUNK] },
  ]) {
    const loaded = await loadChunkManifest(manifest(change));
    assert.throws(() => validateChunkContinuity(loaded), { kind: CORRUPT });
  }
});

test("manifests that no reader accepts are not written", async () => {
  const good = await loadChunkManifest(manifest({}));
  const entry = good.chunks[0]!;
  const named = (id: string): ChunkManifest => ({ ...good, episodeId: id, chunks: [{ ...entry, uri: `${id}.wshard` }] });
  assert.deepEqual(await loadChunkManifest(await encodeChunkManifest(named("e".repeat(193)))), named("e".repeat(193)));
  const bad: ChunkManifest[] = [
    named("e".repeat(194)),
    named("a/b"),
    { ...good, chunks: [{ ...entry, sha256: "0" }] },
    { ...good, chunks: [{ ...entry, length: -1 }] },
    { ...good, chunks: [{ ...entry, lastStep: 2 ** 41 }] },
    { ...good, chunks: [{ ...entry, index: 0.5 }] },
    { ...good, totalTimesteps: -1 },
    { ...good, envId: null as unknown as string },
  ];
  for (const one of bad) {
    await assert.rejects(encodeChunkManifest(one), { kind: "bad_input" });
  }
});

test("blocks that no reader accepts are not written", async () => {
  const block = { data: Uint8Array.of(1, 2, 3) };
  for (const name of ["reward", "done", "time/timestamps_ns", "time/ticks", "meta/episode", "meta/identity"]) {
    await assert.rejects(encodeWShard({ id: "e", length: 4, extra: { [name]: block } }), { kind: "bad_input" }, name);
  }
  const whole = await encodeWShard({ id: "e", length: 3, extra: { done: block } });
  assert.deepEqual([...(await loadWShard(whole.bytes)).terminations!], [1, 1, 1]);
});
