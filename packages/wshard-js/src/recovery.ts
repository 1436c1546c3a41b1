/**
 * Assembly of an episode file from a journal, at the end of a recording or after a crash.
 *
 * Both share this code. A recovered file differs from a finished one only in its `recovered` member. Implements
 * "Recovery" of the specification.
 */

import { claimJournal, fileExists, pathOf, removeFile, stageFile } from "#platform";

import { parseCompression, PLAIN, type Compression, type CompressionName } from "./codecs.js";
import { ALIGNMENTS, JSON_CONTENT, ROLE_EPISODE } from "./container.js";
import { checkNames, isDecodable, planBytes, writeContainer, type BlockPlan } from "./container-writer.js";
import {
  AlreadyExistsError,
  BadInputError,
  ConflictError,
  CorruptError,
  UnsupportedError,
  WShardError,
} from "./errors.js";
import { identity } from "./identity.js";
import {
  hasLaterRecord,
  journalMetadata,
  parseBegin,
  readJournal,
  type Journal,
  type JournalSource,
} from "./journal.js";
import { isCount, isList, isObject, member, type Json, type JsonObject } from "./json-read.js";
import { show } from "./json-write.js";
import { MAX_CHUNK_STEPS, MAX_RECORDED_LZ4_BYTES, MAX_RECORDED_ZSTD_BYTES } from "./limits.js";
import { stepBytes, type ChannelSpec } from "./metadata.js";
import type { JournalFile, StageOptions } from "./platform.js";

export const PARTIAL = ".partial";

/** The result of a recovery. */
export interface Recovery {
  readonly path: string;
  readonly episodeId: string;
  readonly stepCount: number;
  /** The recording had ended, and nothing is missing. */
  readonly isComplete: boolean;
  readonly lostBytes: number;
  /** The most steps that were only in memory when the recording stopped. */
  readonly unflushedStepsAtMost: number;
  /** The reason why the lost bytes at the end of the journal are not valid. */
  readonly problem: string | null;
}

export interface RecoverOptions {
  /** The path of the file; the default is that of the journal without `.partial`. */
  readonly output?: string | URL;
  readonly removePartial?: boolean;
}

/**
 * Writes an episode file with every flushed step of a journal, in Node, and reports the loss.
 *
 * A file at the output with the same episode counts as written. `ConflictError` if the recording still runs. The journal
 * stays unless `removePartial`, and also if flushed steps after a damaged record could not be read.
 */
export async function recover(where: string | URL, options: RecoverOptions = {}): Promise<Recovery> {
  const path = pathOf(where);
  if (options.output === undefined && !path.endsWith(PARTIAL)) {
    throw new BadInputError(`${path} does not end in ${PARTIAL}`, { hint: "Pass output." });
  }
  const target = options.output === undefined ? path.slice(0, -PARTIAL.length) : pathOf(options.output);
  const file = claimOwned(path, false);
  try {
    const source = sourceOf(file);
    const journal = await readJournal(source);
    const { document, stepCount, isComplete, lostBytes } = journal;
    await assemble(journal, file, target, isComplete ? {} : { recovered: { lost_bytes: lostBytes } }, true);
    let { problem } = journal;
    if (options.removePartial === true && lostBytes > 0 && (await hasLaterRecord(source, journal))) {
      problem = `${problem}; later records cannot be read, so the journal stays`;
    } else if (options.removePartial === true) {
      if (file.sizeBytes() !== source.size) {
        throw new ConflictError(`${path} grew while it was recovered, so it was not removed`);
      }
      removeFile(path);
    }
    const episodeId = String(member(document["episode"] as JsonObject, "episode_id") ?? "");
    const buffered = isCount(document, "buffer_steps", MAX_CHUNK_STEPS) ? Number(document["buffer_steps"]) : 0;
    const unflushedStepsAtMost = isComplete ? 0 : buffered;
    return { path: target, episodeId, stepCount, isComplete, lostBytes, unflushedStepsAtMost, problem };
  } finally {
    file.close();
  }
}

/** Opens a journal as its only owner. */
export function claimOwned(path: string, isCreated: boolean): JournalFile {
  const file = claimJournal(path, isCreated);
  if (file === null) {
    throw new ConflictError(`${path} is in use by another recording or recovery`, {
      hint: "Wait until the recording has ended. Read a running one with loadWShard.",
    });
  }
  return file;
}

export function sourceOf(file: JournalFile): JournalSource {
  const read = async (start: number, end: number): Promise<Uint8Array> => {
    const data = file.read(start, end);
    if (data.length !== end - start) {
      throw new CorruptError(`the journal was truncated at byte ${start + data.length} while it was read`);
    }
    return data;
  };
  return { size: file.sizeBytes(), readRange: read };
}

/**
 * Writes the file. Reads the journal once for each block.
 *
 * The caller owns the journal. The temporary file is named after it, so that the next owner finds and removes a file that
 * a killed process left. A target with the same content stays; `AlreadyExistsError` for another one.
 */
export async function assemble(
  journal: Journal,
  file: JournalFile,
  target: string,
  extra: JsonObject,
  isDurable: boolean,
): Promise<void> {
  const temporary = file.savingPath(target);
  removeFile(temporary);
  if (!fileExists(target)) {
    await write(journal, file, target, extra, { temporary, isDurable });
    return;
  }
  // A process may die after the file has its name, and before the journal is removed.
  let isSame = false;
  try {
    await write(journal, file, temporary, extra, { isDurable: false });
    isSame = (await identityOrNull(temporary)) === (await identityOrNull(target));
  } finally {
    removeFile(temporary);
  }
  if (!isSame) {
    throw new AlreadyExistsError(`${target} already exists`, { hint: "Pass another output, or move the file." });
  }
}

/** Returns the identity of a file; a text that no other file has if it is not valid. */
async function identityOrNull(path: string): Promise<string> {
  try {
    return await identity(path);
  } catch (error) {
    if (error instanceof WShardError) {
      return `${path}: ${error.message}`;
    }
    throw error;
  }
}

async function write(
  journal: Journal,
  file: JournalFile,
  target: string,
  extra: JsonObject,
  options: StageOptions,
): Promise<void> {
  const settings = parseSettings(journal.document);
  const metadata = [...journalMetadata(journal, extra)].map(([name, data]) => planBytes(name, data, JSON_CONTENT));
  let before = 0;
  const plans = journal.parts.map((part) => {
    const plan = planPart(journal, file, part, before, settings);
    before += stepBytes(part);
    return plan;
  });
  const staged = await stageFile(target, options);
  try {
    const { alignment, isSealed } = settings;
    const container = { role: ROLE_EPISODE, alignment, defaultCodec: "none", isSealed } as const;
    const { totalBytes } = await writeContainer(staged, [...metadata, ...plans], container);
    await staged.commit(totalBytes);
  } catch (error) {
    await staged.abandon();
    throw error;
  }
}

function planPart(
  { records, stepCount }: Journal,
  file: JournalFile,
  part: ChannelSpec,
  before: number,
  settings: Settings,
): BlockPlan {
  const width = stepBytes(part);
  const sizeBytes = width * stepCount;
  const pieces = function* (): Generator<Uint8Array, void, void> {
    for (const { offset, stepCount: count } of width === 0 ? [] : records) {
      const start = offset + before * count;
      const piece = file.read(start, start + width * count);
      if (piece.length !== width * count) {
        throw new CorruptError(`the journal was truncated at byte ${start + piece.length} while it was read`);
      }
      yield piece;
    }
  };
  const wanted = settings.compression.get(part.block) ?? PLAIN;
  const chunkBytes = wanted.codec === "zstd" ? settings.timeChunkSteps * width : 0;
  const most = wanted.codec === "lz4" ? MAX_RECORDED_LZ4_BYTES : MAX_RECORDED_ZSTD_BYTES;
  // A recording must not fail at its end, so blocks that readers or this encoder would refuse stay uncompressed.
  const frameBytes = chunkBytes > 0 ? Math.min(chunkBytes, sizeBytes) : sizeBytes;
  const isKept = frameBytes > most || !isDecodable(sizeBytes, chunkBytes);
  const how = isKept ? { compression: PLAIN, chunkBytes: 0 } : { compression: wanted, chunkBytes };
  return { name: part.block, sizeBytes, pieces, contentType: 0, tags: 0, ...how };
}

/** The save options of a recording. */
interface Settings {
  readonly alignment: number;
  readonly timeChunkSteps: number;
  readonly isSealed: boolean;
  readonly compression: ReadonlyMap<string, Compression>;
}

function parseSettings(document: JsonObject): Settings {
  const options = member(document, "save");
  const refused = new CorruptError(`the journal has no valid save options: ${show(options)}`);
  if (!isObject(options) || !isObject(member(options, "compression"))) {
    throw refused;
  }
  const [alignment, isSealed] = [member(options, "alignment"), member(options, "seal")];
  const isCounted = isCount(options, "alignment", 64) && isCount(options, "time_chunk_steps", MAX_CHUNK_STEPS);
  if (!isCounted || !ALIGNMENTS.includes(Number(alignment)) || typeof isSealed !== "boolean") {
    throw refused;
  }
  const compression = new Map<string, Compression>();
  for (const [block, value] of Object.entries(options["compression"] as JsonObject)) {
    const found = parsePair(value);
    if (found === null) {
      throw refused;
    }
    compression.set(block, found);
  }
  return { alignment: Number(alignment), timeChunkSteps: Number(options["time_chunk_steps"]), isSealed, compression };
}

/** Parses a codec and its level. Levels of lz4 are accepted, and written at its fast level. */
function parsePair(value: Json): Compression | null {
  if (!isList(value) || value.length !== 2) {
    return null;
  }
  const [codec, level] = value;
  const isFast = codec === "lz4" && isCount(value, 1, 16);
  try {
    return parseCompression([codec, isFast ? null : level] as unknown as CompressionName);
  } catch (error) {
    if (error instanceof BadInputError) {
      return null;
    }
    throw error;
  }
}

/** Refuses a first record from which no file can be assembled, before steps are recorded. */
export function checkRecordable(payload: Uint8Array): void {
  try {
    const { document, parts } = parseBegin(payload);
    const { alignment } = parseSettings(document);
    const names = journalMetadata({ document, parts, stepCount: 0 }).keys();
    checkNames([...names, ...parts.map((part) => part.block)], alignment);
  } catch (cause) {
    if (cause instanceof CorruptError || cause instanceof UnsupportedError) {
      throw new BadInputError(`the episode cannot be recorded: ${cause.message}`, { cause });
    }
    throw cause;
  }
}
