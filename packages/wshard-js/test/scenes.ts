/** Episodes, reference files and damaged files that the tests share. */

import { existsSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { crc32c, prepareDigests, xxh64 } from "../src/digests.js";
import {
  channel,
  DTYPES,
  fromNumbers,
  packResidual,
  type Channel,
  type Episode,
  type EpisodeInit,
  type TypedArray,
} from "../src/index.js";
import { completeEpisode, lanesOf } from "../src/model.js";
import { bytesOf } from "./describe.js";

export { bytesOf };

await prepareDigests();

const PACKAGE = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const VECTORS = process.env["WSHARD_VECTORS"] ?? resolve(PACKAGE, "../../../shared/vectors/wshard");
const GOLDEN = process.env["WSHARD_GOLDEN"] ?? resolve(PACKAGE, "../../tests/golden/wshard");

export const noVectors = existsSync(VECTORS) ? false : "the reference files are missing";
export const noGolden = existsSync(GOLDEN) ? false : "the golden files are missing";

export function vectorPath(name: string): string {
  return join(VECTORS, name);
}

export function goldenPath(name: string): string {
  return join(GOLDEN, name);
}

export function readBytes(path: string): Uint8Array {
  return new Uint8Array(readFileSync(path));
}

/** A file in memory that records the ranges that are read. */
export class CountingSource {
  readonly asked: (readonly [number, number])[] = [];
  readonly size: number;

  constructor(private readonly data: Uint8Array) {
    this.size = data.length;
  }

  readRange(start: number, end: number): Uint8Array {
    this.asked.push([start, end]);
    return this.data.slice(start, end);
  }
}

function ramp(count: number): number[] {
  return Array.from({ length: count }, (_, at) => at % 97);
}

/** Returns an episode with a value in every field, and every element type. */
export function fullEpisode(length = 40): Episode {
  const made = (id: string, dtype: (typeof DTYPES)[number], shape: readonly number[], rows = length): Channel => {
    const all = [rows, ...shape];
    const values = ramp(all.reduce((size, more) => size * more, 1)).map((value) =>
      dtype === "bool" ? value % 2 : value,
    );
    return channel(id, fromNumbers(dtype, all, values).data as TypedArray, shape, { dtype });
  };
  const state = channel(
    "state",
    Float32Array.from({ length: length * 3 }, (_, at) => Math.sin(at)),
    [3],
  );
  const every = DTYPES.map((dtype) => [`${dtype}_ch`, made(`${dtype}_ch`, dtype, [2])] as const);
  return completeEpisode({
    id: "full",
    length,
    envId: "Everything-v1",
    timebase: { type: "timestamps_ns" },
    observations: new Map([
      ...every,
      ["state", state],
      ["cam0/rgb", { ...made("cam0/rgb", "u8", [4, 4, 3]), attributes: { modality: "rgb" } }],
      ["imu", { ...made("imu", "f32", [6], length * 4), attributes: { sampling_rate_hz: 400 } }],
    ]),
    actions: { ctrl: made("ctrl", "f32", [2]) },
    rewards: Float32Array.from({ length }, (_, at) => at / length),
    terminations: Uint8Array.from({ length }, (_, at) => (at === length - 1 ? 1 : 0)),
    truncations: new Uint8Array(length),
    timestampsNs: BigInt64Array.from({ length }, (_, at) => BigInt(at) * 33_333_333n),
    omens: {
      "state/dreamer": made("state/dreamer", "f32", [3]),
      "state/team/model": made("state/team/model", "f64", [5]),
      "latent_action/genie": made("latent_action/genie", "f32", [8]),
      "latent_action_codebook/genie": made("latent_action_codebook/genie", "i32", []),
    },
    uncertainties: { "state/dreamer/std": made("state/dreamer/std", "f32", [3]) },
    residuals: { "state/sign2nddiff": channel("state/sign2nddiff", packResidual(state), [], { isDeclared: false }) },
    metadata: { operator: "bench-2", notes: ["é", 1.5, null], ok: true, large: 2n ** 70n },
    attributes: { source: "bench", action_spaces: { ctrl: [-1, 1] } },
    extra: {
      "vendor/blob": { data: Uint8Array.from({ length: 256 }, (_, at) => at), contentType: 0x8001, tags: 7 },
      "aux/empty": { data: new Uint8Array(0), contentType: 3, tags: 0 },
    },
  });
}

/** Converts an episode to a form that `deepStrictEqual` compares. */
export function contentOf(init: EpisodeInit): unknown {
  const { origin: _, timebase, ...episode } = completeEpisode(init);
  return { ...episode, timebase: { tickHz: null, dtNs: null, ...timebase } };
}

export function laneBytes(episode: Episode): Map<string, Uint8Array> {
  return new Map([...lanesOf(episode)].map(([name, item]) => [name, Uint8Array.from(bytesOf(item))]));
}

export interface RawEntry {
  hash: bigint;
  nameAt: number;
  nameBytes: number;
  flags: number;
  offset: bigint;
  stored: bigint;
  size: bigint;
  checksum: number;
  last: number;
}

const aligned = (offset: number): number => Math.ceil(offset / 64) * 64;

/** A file assembled field by field, so that a test can falsify any of them. */
export class RawFile {
  readonly header = {
    magic: "SHRD",
    version: 2,
    role: 5,
    flags: 0x00a2,
    alignment: 64,
    codec: 0,
    entrySize: 48,
    count: 0,
    names: 0n,
    data: 0n,
    schema: 0n,
    total: 0n,
  };
  readonly names: Uint8Array[];
  readonly payloads: Uint8Array[];
  readonly entries: RawEntry[] = [];
  private readonly dataAt: number;
  size: number;

  /** `gap` is the number of bytes between the index and the names. */
  constructor(
    blocks: Readonly<Record<string, Uint8Array>>,
    private readonly gap = 0,
  ) {
    this.names = Object.keys(blocks).map((name) => new TextEncoder().encode(name));
    this.payloads = Object.values(blocks);
    const namesAt = 64 + 48 * this.names.length + gap;
    this.dataAt = aligned(namesAt + this.names.reduce((sum, name) => sum + name.length, 0));
    let [at, nameAt] = [this.dataAt, 0];
    for (const [number, name] of this.names.entries()) {
      const data = this.payloads[number]!;
      at = aligned(at);
      this.entries.push({
        hash: xxh64(name),
        nameAt,
        nameBytes: name.length,
        flags: 0,
        offset: BigInt(at),
        stored: BigInt(data.length),
        size: BigInt(data.length),
        checksum: crc32c(data),
        last: new TextDecoder().decode(name).startsWith("meta/") ? 2 : 0,
      });
      nameAt += name.length;
      at += data.length;
    }
    this.size = at;
    Object.assign(this.header, {
      count: this.names.length,
      names: BigInt(namesAt),
      data: BigInt(this.dataAt),
      total: BigInt(at),
    });
  }

  build(spoil?: (file: RawFile) => void): Uint8Array {
    spoil?.(this);
    const out = new Uint8Array(this.size);
    const view = new DataView(out.buffer);
    const { header } = this;
    out.set(new TextEncoder().encode(header.magic));
    [header.version, header.role].forEach((value, at) => view.setUint8(4 + at, value));
    view.setUint16(6, header.flags, true);
    view.setUint8(8, header.alignment);
    view.setUint8(9, header.codec);
    view.setUint16(10, header.entrySize, true);
    view.setUint32(12, header.count, true);
    [header.names, header.data, header.schema, header.total].forEach((value, at) =>
      view.setBigUint64(16 + 8 * at, value, true),
    );
    this.entries.forEach((entry, number) => this.putEntry(new DataView(out.buffer, 64 + 48 * number, 48), entry));
    let at = 64 + 48 * this.entries.length + this.gap;
    for (const name of this.names) {
      out.set(name, at);
      at += name.length;
    }
    at = this.dataAt;
    for (const data of this.payloads) {
      at = aligned(at);
      out.set(data, at);
      at += data.length;
    }
    return out;
  }

  private putEntry(view: DataView, entry: RawEntry): void {
    view.setBigUint64(0, entry.hash, true);
    view.setUint32(8, entry.nameAt, true);
    view.setUint16(12, entry.nameBytes, true);
    view.setUint16(14, entry.flags, true);
    view.setBigUint64(16, entry.offset, true);
    view.setBigUint64(24, entry.stored, true);
    view.setBigUint64(32, entry.size, true);
    view.setUint32(40, entry.checksum, true);
    view.setUint32(44, entry.last, true);
  }
}
