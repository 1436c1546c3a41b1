/**
 * Episodes in several files: the manifest of the chunks, and the check that they are continuous.
 * Implements "Chunked episodes" of the specification.
 */

import { prepareDigests } from "./digests.js";
import { JSON_CONTENT, ROLE_MANIFEST } from "./container.js";
import { BadInputError, CorruptError, UnsupportedError } from "./errors.js";
import type { HttpOptions } from "./http.js";
import { decodeObject, isCount, isList, isObject, member, type Json, type JsonObject } from "./json-read.js";
import { encodeJson, show } from "./json-write.js";
import { MAX_CHUNKS, MAX_STEPS } from "./limits.js";
import { openContainer } from "./reader.js";
import type { Source } from "./source.js";
import { MemorySink, planBytes, writeContainer } from "./container-writer.js";

const META_MANIFEST = "meta/manifest";
const SHOWN = 10;

/** One chunk, with the steps `firstStep` to `lastStep`, both included, counted over the whole episode. */
export interface ChunkEntry {
  readonly index: number;
  readonly uri: string;
  readonly sha256: string;
  readonly firstStep: number;
  readonly lastStep: number;
  readonly length: number;
  readonly total: number;
}

/** The content of a manifest. `validateChunkContinuity` checks that it is complete and in order. */
export interface ChunkManifest {
  readonly episodeId: string;
  readonly envId: string;
  readonly totalChunks: number;
  readonly totalTimesteps: number;
  readonly chunks: readonly ChunkEntry[];
}

/** Reads a manifest of chunks. Checks its structure, not its continuity. */
export async function loadChunkManifest(where: Source, http: HttpOptions = {}): Promise<ChunkManifest> {
  const file = await openContainer(where, http);
  try {
    if (file.header.role !== ROLE_MANIFEST) {
      const shown = `0x${file.header.role.toString(16).padStart(2, "0")}`;
      throw new UnsupportedError(`the file has the role ${shown}, not that of a manifest`);
    }
    if (!file.has(META_MANIFEST)) {
      throw new CorruptError(`there is no block '${META_MANIFEST}'`);
    }
    return parseManifest(decodeObject(await file.readJson(META_MANIFEST), META_MANIFEST));
  } finally {
    await file.close();
  }
}

/** Encodes the manifest as a file, `{episode_id}_manifest.wshard`. Refuses a manifest that no reader accepts. */
export async function encodeChunkManifest(manifest: ChunkManifest): Promise<Uint8Array> {
  await prepareDigests();
  const document = {
    episode_id: manifest.episodeId,
    env_id: manifest.envId,
    total_chunks: manifest.totalChunks,
    total_timesteps: manifest.totalTimesteps,
    chunks: manifest.chunks.map((entry) => ({
      chunk_index: entry.index,
      uri: entry.uri,
      sha256: entry.sha256,
      timestep_range: [entry.firstStep, entry.lastStep],
      length_T: entry.length,
      total_chunks: entry.total,
    })),
  };
  const data = encodeJson(document);
  try {
    parseManifest(decodeObject(data, META_MANIFEST));
  } catch (cause) {
    if (cause instanceof CorruptError) {
      throw new BadInputError(`the manifest cannot be written: ${cause.message}`, { cause });
    }
    throw cause;
  }
  const sink = new MemorySink();
  const plan = planBytes(META_MANIFEST, data, JSON_CONTENT);
  const options = { role: ROLE_MANIFEST, alignment: 64, defaultCodec: "none", isSealed: false } as const;
  const { totalBytes } = await writeContainer(sink, [plan], options);
  return sink.bytes(totalBytes);
}

/** Throws `CorruptError` naming every gap and contradiction. `validateChunkFiles` checks the files too. */
export function validateChunkContinuity(manifest: ChunkManifest): void {
  const problems = [...findGaps(manifest)];
  if (problems.length > 0) {
    throw continuityError(manifest, problems);
  }
}

export function continuityError(manifest: ChunkManifest, problems: readonly string[]): CorruptError {
  const more = problems.length > SHOWN ? `; and ${problems.length - SHOWN} more` : "";
  return new CorruptError(`episode '${manifest.episodeId}': ${problems.slice(0, SHOWN).join("; ")}${more}`);
}

/** Yields every gap and contradiction in a manifest. */
export function* findGaps(manifest: ChunkManifest): Generator<string> {
  const { chunks, totalChunks, totalTimesteps } = manifest;
  if (totalChunks !== chunks.length || chunks.length === 0) {
    yield `totalChunks is ${totalChunks}, ${chunks.length} are listed`;
  }
  let following = 0;
  for (const [position, { index, total, firstStep, lastStep, length }] of chunks.entries()) {
    if (index !== position) {
      yield `chunk ${index} is at position ${position}`;
    }
    if (total !== totalChunks) {
      yield `chunk ${index} says that there are ${total} chunks`;
    }
    if (firstStep !== following) {
      yield `chunk ${index} begins at step ${firstStep} instead of ${following}`;
    }
    if (lastStep - firstStep + 1 !== length || length === 0) {
      yield `chunk ${index} has ${length} steps from ${firstStep} to ${lastStep}`;
    }
    following = lastStep + 1;
  }
  if (chunks.reduce((sum, entry) => sum + entry.length, 0) !== totalTimesteps) {
    yield `the lengths do not add up to ${totalTimesteps}`;
  }
  if (new Set(chunks.map((entry) => entry.uri)).size !== chunks.length) {
    yield "one file is listed twice";
  }
}

function parseManifest(document: JsonObject): ChunkManifest {
  const listed = member(document, "chunks");
  if (!isList(listed) || listed.length > MAX_CHUNKS) {
    throw new CorruptError(`${META_MANIFEST} has no valid list of chunks`);
  }
  const episodeId = member(document, "episode_id");
  const envId = Object.hasOwn(document, "env_id") ? document["env_id"] : "";
  if (typeof episodeId !== "string" || typeof envId !== "string") {
    throw new CorruptError(`${META_MANIFEST} has no valid episode_id or env_id`);
  }
  return {
    episodeId,
    envId,
    totalChunks: count(document, "total_chunks"),
    totalTimesteps: count(document, "total_timesteps"),
    chunks: listed.map(parseEntry),
  };
}

function parseEntry(item: Json): ChunkEntry {
  if (!isObject(item)) {
    throw new CorruptError(`${META_MANIFEST} lists ${show(item)} as a chunk`);
  }
  const [uri, digest, span] = [member(item, "uri"), member(item, "sha256"), member(item, "timestep_range")];
  if (typeof uri !== "string" || !isFileName(uri)) {
    throw new CorruptError(`the chunk uri ${show(uri)} is not a file name beside the manifest`);
  }
  if (typeof digest !== "string" || !/^[0-9a-f]{64}$/.test(digest)) {
    throw new CorruptError(`chunk '${uri}' has the sha256 ${show(digest)}`);
  }
  if (!isList(span) || span.length !== 2 || ![0, 1].every((at) => isCount(span, at, MAX_STEPS))) {
    throw new CorruptError(`chunk '${uri}' has the timestep_range ${show(span)}`);
  }
  return {
    index: count(item, "chunk_index"),
    uri,
    sha256: digest,
    firstStep: Number(span[0]),
    lastStep: Number(span[1]),
    length: count(item, "length_T"),
    total: count(item, "total_chunks"),
  };
}

/** Returns whether the text is a file name without directories. */
function isFileName(text: string): boolean {
  return /^[^/\\\0:]{1,200}$/u.test(text) && text !== "." && text !== "..";
}

function count(item: JsonObject, key: string): number {
  if (!isCount(item, key, MAX_STEPS)) {
    throw new CorruptError(`${META_MANIFEST} has ${key} = ${show(member(item, key))}`);
  }
  return Number(item[key]);
}
