/**
 * Verification of the files of a manifest, and loading of all its chunks into one episode.
 * Implements "Continuity" and "Joined chunks" of the specification.
 */

import { newSha256 } from "#platform";

import { TICKS } from "./block-type.js";
import { sameBytes, concat } from "./bytes.js";
import { findDisagreement, type ChunkLayout } from "./chunk-layout.js";
import { continuityError, findGaps, loadChunkManifest, type ChunkEntry, type ChunkManifest } from "./chunked.js";
import { joinArrays, type NdArray } from "./dtypes.js";
import { ObjectNotFoundError, UnsupportedError } from "./errors.js";
import { openerBeside, fileLayout, type ChunkOpener } from "./joined.js";
import { merged } from "./json-read.js";
import { PIECE_BYTES } from "./limits.js";
import { loadWShard, SERIES, type LoadOptions } from "./load.js";
import { isEncoded, type Block, type Channel, type Episode } from "./model.js";
import { asEpisode, readContainer } from "./reader.js";
import { OpenSource, type Source } from "./source.js";

const HINT = "Load the chunks one by one, or name the channels to load.";
const GROUPS = ["observations", "actions", "omens", "uncertainties", "residuals"] as const;

/** Hashes the files of a manifest, and compares them with it and with each other. `CorruptError` names every problem. */
export async function validateChunkFiles(manifest: ChunkManifest, open: ChunkOpener): Promise<void> {
  const problems = [...findGaps(manifest)];
  let first: ChunkLayout | undefined;
  for (const entry of manifest.chunks) {
    const found = await checkFile(manifest, entry, open);
    problems.push(...found.problems.map((problem) => `${entry.uri} ${problem}`));
    if (found.layout !== null) {
      first ??= found.layout;
      const problem = findDisagreement(first, found.layout, true);
      problems.push(...(problem === null ? [] : [`${entry.uri} ${problem}`]));
    }
  }
  if (problems.length > 0) {
    throw continuityError(manifest, problems);
  }
}

interface CheckedFile {
  readonly problems: readonly string[];
  readonly layout: ChunkLayout | null;
}

async function checkFile(manifest: ChunkManifest, entry: ChunkEntry, open: ChunkOpener): Promise<CheckedFile> {
  const refused = (problem: string): CheckedFile => ({ problems: [problem], layout: null });
  let source: OpenSource;
  try {
    source = await OpenSource.open(await open(entry.uri));
  } catch (error) {
    if (error instanceof ObjectNotFoundError) {
      return refused("is missing");
    }
    throw error;
  }
  try {
    if ((await hashOf(source)) !== entry.sha256) {
      return refused("is not the file that was listed");
    }
    const file = await asEpisode(await readContainer(source));
    const info = await file.info();
    if (info?.id !== manifest.episodeId || info.length !== entry.length) {
      return refused(`does not hold ${entry.length} steps of this episode`);
    }
    const problems: string[] = [];
    if (info.chunk !== null && (info.chunk.index !== entry.index || info.chunk.firstStep !== entry.firstStep)) {
      problems.push("says that it has another position in the episode");
    }
    if (typeof info.chunk?.total === "number" && info.chunk.total !== manifest.totalChunks) {
      problems.push(`says that there are ${info.chunk.total} chunks`);
    }
    return { problems, layout: fileLayout(file, info) };
  } finally {
    await source.close();
  }
}

async function hashOf(source: OpenSource): Promise<string> {
  const hash = await newSha256();
  for (let start = 0; start < source.size; start += PIECE_BYTES) {
    hash.update(await source.readRange(start, Math.min(start + PIECE_BYTES, source.size)));
  }
  return hash.hex();
}

/** Loads all chunks of a manifest, verified and joined. */
export async function loadChunks(where: Source, options: LoadOptions): Promise<Episode> {
  const manifest = await loadChunkManifest(where, options.http);
  const open = options.open ?? openerBeside(where, options.http);
  await validateChunkFiles(manifest, open);
  const chunks: Episode[] = [];
  for (const { uri } of manifest.chunks) {
    chunks.push(await loadWShard(await open(uri), options));
  }
  return chunks.length === 1 ? { ...chunks[0]!, chunk: null } : joinEpisodes(chunks);
}

/** Joins chunks in memory. Video and residuals are encoded separately in each chunk, and cannot be joined. */
function joinEpisodes(chunks: readonly Episode[]): Episode {
  const groups = Object.fromEntries(GROUPS.map((group) => [group, joinChannels(chunks.map((chunk) => chunk[group]))]));
  const series = Object.fromEntries(
    Object.values(SERIES).map(([field, dtype]) => {
      const arrays = chunks.flatMap(({ [field]: data }) =>
        data === null ? [] : [{ dtype, data, shape: [data.length] } as NdArray],
      );
      return [field, arrays.length === 0 ? null : joinArrays(arrays).data];
    }),
  );
  return {
    ...chunks[0]!,
    ...(groups as Pick<Episode, (typeof GROUPS)[number]>),
    ...(series as Partial<Episode>),
    length: chunks.reduce((sum, chunk) => sum + chunk.length, 0),
    metadata: merged(...chunks.map((chunk) => chunk.metadata)),
    chunk: null,
    provenance: null,
    extra: joinBlocks(chunks.map((chunk) => chunk.extra)),
    origin: null,
  };
}

function joinChannels(groups: readonly ReadonlyMap<string, Channel>[]): ReadonlyMap<string, Channel> {
  const out = new Map<string, Channel>();
  for (const name of new Set(groups.flatMap((group) => [...group.keys()]))) {
    const parts = groups.map((group) => group.get(name));
    const first = parts[0];
    const isJoined = first !== undefined && first.isDeclared && !isEncoded(first.attributes);
    if (!isJoined || name.endsWith("/sign2nddiff") || parts.includes(undefined)) {
      throw new UnsupportedError(`channel '${name}' has an encoding of its own in each chunk`, { hint: HINT });
    }
    out.set(name, { ...first, ...joinArrays(parts as readonly Channel[]) });
  }
  return out;
}

/** Joins `time/ticks`, and requires that all other blocks are equal in all chunks. */
function joinBlocks(each: readonly ReadonlyMap<string, Block>[]): ReadonlyMap<string, Block> {
  const out = new Map(each[0]);
  for (const name of new Set(each.flatMap((blocks) => [...blocks.keys()]))) {
    const [first, ...rest] = each.map((blocks) => blocks.get(name));
    const all = [first, ...rest].filter((block) => block !== undefined);
    const isSame = rest.every((block) => block !== undefined && first !== undefined && isAlike(block, first));
    if (name === TICKS && all.length === each.length) {
      out.set(name, { ...first!, data: concat(all.map((block) => block.data)) });
    } else if (!isSame) {
      throw new UnsupportedError(`block '${name}' is not the same in all chunks`, { hint: HINT });
    }
  }
  return out;
}

function isAlike(left: Block, right: Block): boolean {
  const isNoted = left.contentType === right.contentType && left.tags === right.tags;
  return isNoted && sameBytes(left.data, right.data);
}
