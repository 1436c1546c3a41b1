/**
 * The identity of an episode: a hash of the hashes of its blocks, independent of compression.
 * Implements "Identity" of the specification.
 */

import { newSha256 } from "#platform";

import { sameBytes } from "./bytes.js";
import { BadInputError, CorruptError } from "./errors.js";
import { objectOf, type JsonObject } from "./json-read.js";
import { encodeJson } from "./json-write.js";
import { openContainer } from "./reader.js";
import type { Source } from "./source.js";

export const META_IDENTITY = "meta/identity";
export const META_PROVENANCE = "meta/provenance";

const PROVENANCE_MEMBERS: readonly string[] = [
  "end_state",
  "epoch",
  "first_seq",
  "last_seq",
  "prev_identity",
  "run_id",
  "source",
  "start_state",
  "v",
];

/**
 * Returns 64 hex digits that name the content. Compression, alignment and block order do not change them.
 *
 * Reads and hashes every block. `CorruptError` if a sealed file does not match its seal.
 */
export async function identity(where: Source): Promise<string> {
  const file = await openContainer(where);
  try {
    const hashes = new Map<string, string>();
    for (const name of file.blocks.filter((name) => name !== META_IDENTITY)) {
      const hash = await newSha256();
      for await (const piece of file.block(name).pieces()) {
        hash.update(piece);
      }
      hashes.set(name, hash.hex());
    }
    const computed = sealBytes(hashes);
    if (file.has(META_IDENTITY) && !sameBytes(await file.readJson(META_IDENTITY), computed)) {
      throw new CorruptError("the blocks of the file are not those that were sealed");
    }
    return await sha256(computed);
  } finally {
    await file.close();
  }
}

/** Returns the identity of an episode in several files, from those of its chunks, in order. */
export async function joinedIdentity(identities: readonly string[]): Promise<string> {
  return sha256(encodeJson({ chunks: identities, v: 1 }));
}

/** Returns the content of `meta/identity`, from the SHA-256 of each other block. */
export function sealBytes(hashes: ReadonlyMap<string, string>): Uint8Array {
  return encodeJson({ entries: objectOf(hashes), leaf: "sha256", v: 1 });
}

export async function sha256(data: Uint8Array): Promise<string> {
  const hash = await newSha256();
  hash.update(data);
  return hash.hex();
}

/** Throws `BadInputError` unless exactly the known members are present. */
export function checkProvenance(provenance: JsonObject): void {
  const found = Object.keys(provenance);
  const differing = [
    ...found.filter((name) => !PROVENANCE_MEMBERS.includes(name)),
    ...PROVENANCE_MEMBERS.filter((name) => !found.includes(name)),
  ];
  if (differing.length > 0) {
    throw new BadInputError(`the provenance has missing or unknown members: ${differing.sort().join(", ")}`);
  }
}
