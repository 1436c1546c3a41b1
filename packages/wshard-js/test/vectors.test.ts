/** If this fails, files of other laboratories or of the Python library are misread, or get another identity. */

import assert from "node:assert/strict";
import test from "node:test";

import { crc32c, xxh64 } from "../src/digests.js";
import {
  DTYPES,
  dtypeBytes,
  encodeChunkManifest,
  encodeWShard,
  identity,
  loadChunkManifest,
  loadWShard,
  openWShard,
  timebaseHz,
  toNumbers,
  unpackResidual,
  validateChunkContinuity,
} from "../src/index.js";
import { bytesOf, goldenPath, noGolden, noVectors, readBytes, vectorPath } from "./scenes.js";

const IDENTITIES: Readonly<Record<string, string>> = {
  simple_episode: "ebf8d660",
  dtype_zoo: "1666d48d",
  per_block_compressed: "45af700e",
  omen_uncert: "49e98e2b",
  multimodal: "0d42911f",
  latent_action: "a6366247",
};

test("identities are the known ones, and rewrites keep them", { skip: noVectors }, async () => {
  for (const [name, start] of Object.entries(IDENTITIES)) {
    const path = vectorPath(`${name}.wshard`);
    const found = await identity(path);
    assert.equal(found.slice(0, 8), start);
    const episode = await loadWShard(path);
    const sealed = await encodeWShard(episode, { compression: "zstd", alignment: 16, seal: true });
    assert.equal(sealed.identity, found);
    assert.equal(await identity(sealed.bytes), found);
    if (name !== "per_block_compressed") {
      assert.deepEqual((await encodeWShard(episode)).bytes, readBytes(path));
    }
  }
});

test("a simple episode", { skip: noVectors }, async () => {
  const episode = await loadWShard(vectorPath("simple_episode.wshard"));
  assert.deepEqual([episode.id, episode.envId, episode.length], ["golden_simple", "TestEnv-v1", 10]);
  assert.equal(timebaseHz(episode.timebase), 30);
  const state = episode.observations.get("state")!;
  assert.deepEqual([state.dtype, state.shape], ["f32", [10, 4]]);
  assert.deepEqual([...state.data.subarray(0, 4)], [0, 1, 2, 3]);
  assert.deepEqual(episode.actions.get("ctrl")!.shape, [10, 2]);
  assert.deepEqual(
    [...episode.rewards!],
    Array.from({ length: 10 }, (_, at) => (at % 2 === 0 ? 1 : 0.5)),
  );
  assert.deepEqual([...episode.terminations!], [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
  assert.equal(episode.truncations, null);
});

test("element types and lanes", { skip: noVectors }, async () => {
  const zoo = (await loadWShard(vectorPath("dtype_zoo.wshard"))).observations;
  const half = zoo.get("bf16_ch")!;
  assert.equal(half.dtype, "bf16");
  const columns = half.shape[1] ?? 1;
  assert.deepEqual(
    [...toNumbers(half)].filter((_, at) => at % columns === 0),
    [1, 2, 3, 4],
  );
  const latent = await loadWShard(vectorPath("latent_action.wshard"));
  assert.deepEqual(latent.omens.get("latent_action/genie3")!.shape, [8, 16]);
  assert.deepEqual([...latent.omens.get("latent_action_codebook/genie3")!.data], [0, 1, 2, 3, 4, 5, 6, 7]);
  const rgb = (await loadWShard(vectorPath("multimodal.wshard"))).observations.get("obs/rgb")!;
  assert.deepEqual(rgb.shape, [5, 8, 8, 3]);
  assert.equal(rgb.attributes["modality"], "rgb");
  const omen = await loadWShard(vectorPath("omen_uncert.wshard"));
  const bits = unpackResidual(omen.residuals.get("joint_pos/sign2nddiff")!.data as Uint8Array, 10);
  const joints = omen.observations.get("joint_pos")!;
  const x = [...toNumbers(joints)].filter((_, at) => at % 3 === 0);
  for (let step = 1; step < 9; step++) {
    assert.equal(bits.data[step], 2 * x[step]! - x[step - 1]! - x[step + 1]! > 0 ? 1 : 0);
  }
});

test("known hashes", { skip: noVectors }, () => {
  const known = JSON.parse(new TextDecoder().decode(readBytes(vectorPath("golden_hashes.json")))) as Record<
    string,
    string
  >;
  const text = (word: string): Uint8Array => new TextEncoder().encode(word);
  assert.equal(crc32c(text("hello")), Number(known["crc32c_hello"]));
  assert.equal(crc32c(text("123456789")), 0xe3069283);
  assert.equal(xxh64(text("signal/obs")), BigInt(known["xxhash64_signal_obs"]!));
  assert.equal(xxh64(text("meta/manifest")), BigInt(known["xxhash64_meta_manifest"]!));
  assert.equal(xxh64(text("a")), 15154266338359012955n);
  assert.deepEqual(known["dtype_sizes"], Object.fromEntries(DTYPES.map((dtype) => [dtype, dtypeBytes(dtype)])));
});

test("golden files of the Python library", { skip: noGolden }, async () => {
  const known = JSON.parse(new TextDecoder().decode(readBytes(goldenPath("identities.json")))) as Record<
    string,
    unknown
  >;
  const plain = await openWShard(readBytes(goldenPath("plain.wshard")));
  for (const name of ["plain", "sealed", "zstd", "lz4", "time_chunks", "unaligned"]) {
    const data = readBytes(goldenPath(`${name}.wshard`));
    assert.ok(JSON.stringify(known).includes(await identity(data)), name);
    const file = await openWShard(data);
    for (const block of file.blocks.filter((block) => block !== "meta/identity")) {
      const [one, two] = [await file.block(block).read(), await plain.block(block).read()];
      assert.deepEqual([one.dtype, one.shape, bytesOf(one)], [two.dtype, two.shape, bytesOf(two)]);
    }
  }
  const options = { plain: {}, sealed: { alignment: 32, seal: true }, unaligned: { alignment: 0 } } as const;
  for (const [name, how] of Object.entries(options)) {
    const golden = readBytes(goldenPath(`${name}.wshard`));
    const again = await encodeWShard({ ...(await loadWShard(golden)), origin: null }, how);
    assert.equal(await identity(again.bytes), await identity(golden), name);
    const kept = await encodeWShard(await loadWShard(golden), how);
    assert.deepEqual(kept.bytes, golden, name);
  }
});

test("a manifest of chunks", { skip: noGolden }, async () => {
  const golden = readBytes(goldenPath("manifest.wshard"));
  const manifest = await loadChunkManifest(golden);
  validateChunkContinuity(manifest);
  assert.deepEqual(await encodeChunkManifest(manifest), golden);
  await assert.rejects(loadWShard(golden), { kind: "unsupported" });
  await assert.rejects(loadChunkManifest(goldenPath("plain.wshard")), { kind: "unsupported" });
});

test("a journal of the Python library", { skip: noGolden }, async () => {
  const golden = readBytes(goldenPath("streamed.journal"));
  assert.equal((await loadWShard(golden)).length, 10);
  const some = await loadWShard(golden, { channels: ["q"] });
  assert.deepEqual([...some.observations.keys()], ["q"]);
  await assert.rejects(loadWShard(golden, { channels: ["nothing"] }), { kind: "bad_input" });
});
