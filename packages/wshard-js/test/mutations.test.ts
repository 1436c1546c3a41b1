/**
 * If this fails, a damaged file crashes a reader, hangs it, exhausts its memory, or is accepted.
 *
 * Bytes of valid files are changed, cut, moved or repeated. The result must be a typed error or exactly the saved data.
 */

import assert from "node:assert/strict";
import test from "node:test";

import { encodeWShard, identity, loadWShard, openWShard, WShardError } from "../src/index.js";
import { contentOf, fullEpisode } from "./scenes.js";

const SETTINGS = [
  {},
  { compression: "zstd", alignment: 16 },
  { compression: "lz4", alignment: 0, seal: true },
  { compression: "zstd", timeChunkSteps: 5 },
] as const;
const ROUNDS = Number(process.env["WSHARD_MUTATIONS"] ?? 400);
const GOOD = contentOf(fullEpisode(12));

/** A seeded random generator, so that failures are repeatable. */
class Chance {
  constructor(private state: number) {}

  below(limit: number): number {
    this.state = (Math.imul(this.state ^ (this.state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) | 0;
    const mixed = Math.imul(this.state ^ (this.state >>> 12), 0x297a2d39);
    return ((mixed ^ (mixed >>> 15)) >>> 0) % limit;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!;
  }
}

function mutate(data: Uint8Array, chance: Chance): Uint8Array {
  let out = Array.from(data);
  for (let left = chance.pick([1, 1, 1, 2, 4]); left > 0 && out.length > 0; left--) {
    const at = chance.below(chance.below(10) < 6 ? Math.min(out.length, 64 + 48 * 30) : out.length);
    const size = chance.pick([1, 8, 48, 500]);
    switch (chance.below(6)) {
      case 0:
        out[at]! ^= 1 << chance.below(8);
        break;
      case 1:
        out[at] = chance.pick([0, 1, 0x7f, 0x80, 0xff]);
        break;
      case 2:
        out.splice(
          at,
          4,
          ...chance.pick([
            [0, 0, 0, 0],
            [1, 0, 0, 0],
            [255, 255, 0, 0],
            [0, 128, 0, 0],
          ]),
        );
        break;
      case 3:
        out.splice(at, 8, ...new Array<number>(7).fill(chance.pick([0, 255])), chance.pick([0, 127, 128, 255]));
        break;
      case 4:
        out.splice(at, size);
        break;
      default:
        out = [...out.slice(0, at), ...out.slice(at, at + size), ...out.slice(at)];
    }
  }
  return Uint8Array.from(out);
}

async function judged(work: () => Promise<void>): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    if (!(error instanceof WShardError)) {
      throw error;
    }
    return false;
  }
}

async function judge(data: Uint8Array): Promise<boolean> {
  const accepted = await judged(async () => assert.deepStrictEqual(contentOf(await loadWShard(data)), GOOD));
  await judged(async () => {
    const file = await openWShard(data);
    for (const name of file.blocks) {
      await judged(async () => {
        const reader = file.block(name);
        const { rows } = await reader.blockType();
        const [start, stop] = [Math.floor(rows / 3), Math.floor(rows / 2)];
        assert.equal((await reader.window(start, stop)).shape[0], stop - start);
      });
    }
    await identity(data);
  });
  return accepted;
}

test("mutations give a typed error or the right data", { timeout: 600_000 }, async () => {
  const files = await Promise.all(
    SETTINGS.map(async (options) => (await encodeWShard(fullEpisode(12), options)).bytes),
  );
  for (const file of files) {
    assert.ok(await judge(file));
  }
  let accepted = 0;
  for (let seed = 0; seed < ROUNDS; seed++) {
    const chance = new Chance(seed);
    const data = mutate(chance.pick(files), chance);
    try {
      accepted += (await judge(data)) ? 1 : 0;
    } catch (error) {
      throw new Error(`seed ${seed}`, { cause: error });
    }
  }
  assert.ok(accepted < ROUNDS / 2);
});
