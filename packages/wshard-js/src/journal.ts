/**
 * The journal of a recording: an append-only file of records with checksums.
 *
 * Checksums detect a record that a crash left incomplete; the records before it are valid. Implements "Journal" of the
 * specification.
 */

import { concat, readU64, viewOf, writeU64 } from "./bytes.js";
import { crc32c, prepareDigests } from "./digests.js";
import { checkEmptyShape, decodeArray } from "./dtypes.js";
import { freshMetadata } from "./metadata-writer.js";
import { BadInputError, CorruptError } from "./errors.js";
import { decodeObject, isList, isObject, member, merged, type JsonObject } from "./json-read.js";
import { sameJson } from "./json-write.js";
import { MAX_CHANNELS, MAX_JSON_BYTES, MAX_RECORD_BYTES } from "./limits.js";
import { DONE, findBlockType, REWARD, TIMESTAMPS, TRUNCATED } from "./block-type.js";
import { parseChannel, parseInfo, stepBytes, type ChannelSpec, type EpisodeInfo } from "./metadata.js";
import { completeEpisode, type Channel, type Episode } from "./model.js";
import type { OpenSource } from "./source.js";

export const RECORD_BYTES = 40;
/** Kinds of records. */
export const [BEGIN, STEPS, END] = [1, 2, 3] as const;

const MAGIC = 0x314a5357;
const CHANNEL = /^(signal|action)\//;
const PREDICTION = /^(omen|uncert)\//;

/** The source of a journal: any open source, or the file of its owner. */
export type JournalSource = Pick<OpenSource, "size" | "readRange">;

/** The valid records of a journal. `problem` is the reason why reading stopped before the end of the file. */
export interface Journal {
  readonly document: JsonObject;
  readonly parts: readonly ChannelSpec[];
  /** The payloads of the steps records: the series of the parts, one after another. */
  readonly records: readonly { readonly offset: number; readonly stepCount: number }[];
  readonly stepCount: number;
  readonly isComplete: boolean;
  readonly goodBytes: number;
  readonly lostBytes: number;
  readonly problem: string | null;
}

interface RecordHead {
  readonly kind: number;
  readonly number: number;
  readonly firstStep: number;
  readonly stepCount: number;
  readonly payloadBytes: number;
  readonly checksum: number;
}

/** Writes the header of a record over its first 40 bytes. The rest of `record` is its payload. */
export function sealRecord(record: Uint8Array, head: Omit<RecordHead, "payloadBytes" | "checksum">): void {
  const view = viewOf(record);
  view.setUint32(0, MAGIC, true);
  view.setUint32(4, head.kind, true);
  view.setUint32(8, head.number, true);
  writeU64(view, 12, head.firstStep);
  view.setUint32(20, head.stepCount, true);
  writeU64(view, 24, record.length - RECORD_BYTES);
  view.setUint32(32, crc32c(record.subarray(RECORD_BYTES)), true);
  view.setUint32(36, crc32c(record.subarray(0, 36)), true);
}

/** Parses a header of 40 bytes; null if it is not valid. */
function parseHead(raw: Uint8Array): RecordHead | null {
  const view = viewOf(raw);
  if (view.getUint32(0, true) !== MAGIC || crc32c(raw.subarray(0, 36)) !== view.getUint32(36, true)) {
    return null;
  }
  return {
    kind: view.getUint8(4),
    number: view.getUint32(8, true),
    firstStep: readU64(view, 12),
    stepCount: view.getUint32(20, true),
    payloadBytes: readU64(view, 24),
    checksum: view.getUint32(32, true),
  };
}

export async function isJournal(source: OpenSource): Promise<boolean> {
  return source.size >= 4 && viewOf(await source.readRange(0, 4)).getUint32(0, true) === MAGIC;
}

/** Returns the steps flushed so far. `channels` selects some, by id or block name. */
export async function loadJournal(source: OpenSource, channels: readonly string[] | null): Promise<Episode> {
  // Held in memory, because a journal has one small range for each part of each record.
  const payloads: Payload[] = [];
  const journal = await readJournal(source, (stepCount, payload) => payloads.push([stepCount, payload]));
  const info = describe(journal);
  const taken = new Map<string, Channel>();
  let before = 0;
  for (const part of journal.parts) {
    const isSeries = !part.block.includes("/") || part.block === TIMESTAMPS;
    if (channels === null || isSeries || channels.includes(part.id) || channels.includes(part.block)) {
      taken.set(part.block, readPart(payloads, part, before, journal.stepCount));
    }
    before += stepBytes(part);
  }
  const known = new Set([...taken].flatMap(([block, part]) => [block, part.id]));
  const unknown = (channels ?? []).filter((name) => !known.has(name));
  if (unknown.length > 0) {
    throw new BadInputError(`there are no channels ${unknown.sort().join(", ")} in the journal`);
  }
  const group = (prefix: string): Map<string, Channel> =>
    new Map(
      [...taken]
        .filter(([block]) => block.startsWith(prefix))
        .map(([block, part]) => [block.slice(prefix.length), part]),
    );
  const { id, length, envId, timebase, metadata, attributes } = info;
  return completeEpisode({
    ...{ id, length, envId, timebase, metadata, attributes },
    observations: group("signal/"),
    actions: group("action/"),
    omens: group("omen/"),
    uncertainties: group("uncert/"),
    // `describe` has checked these types.
    rewards: (taken.get(REWARD)?.data ?? null) as Float32Array | null,
    terminations: (taken.get(DONE)?.data ?? null) as Uint8Array | null,
    truncations: (taken.get(TRUNCATED)?.data ?? null) as Uint8Array | null,
    timestampsNs: (taken.get(TIMESTAMPS)?.data ?? null) as BigInt64Array | null,
  });
}

type Payload = readonly [stepCount: number, payload: Uint8Array];

function readPart(payloads: readonly Payload[], part: ChannelSpec, before: number, stepCount: number): Channel {
  const width = stepBytes(part);
  const pieces =
    width === 0 ? [] : payloads.map(([count, payload]) => payload.subarray(before * count, (before + width) * count));
  const array = decodeArray(concat(pieces), part.dtype, [stepCount, ...part.shape]);
  return { ...array, id: part.id, attributes: part.attributes, isDeclared: true };
}

/** Reads and verifies every record, and passes the payloads of steps to `take`. Throws only if the first is not valid. */
export async function readJournal(
  source: JournalSource,
  take: (stepCount: number, payload: Uint8Array) => void = () => undefined,
): Promise<Journal> {
  await prepareDigests();
  const first = await readRecord(source, 0, 0);
  if (typeof first === "string" || first.head.kind !== BEGIN || first.payload.length > MAX_JSON_BYTES) {
    const why = typeof first === "string" ? first : "it is another kind of record";
    throw new CorruptError(`the journal has no valid first record: ${why}`, await hintOf(source));
  }
  const { document, parts } = parseBegin(first.payload);
  const width = parts.reduce((sum, part) => sum + stepBytes(part), 0);
  const records: { offset: number; stepCount: number }[] = [];
  let [at, stepCount, isComplete, problem] = [RECORD_BYTES + first.payload.length, 0, false, null as string | null];
  for (let number = 1; at < source.size && !isComplete; number++) {
    const record = await readRecord(source, at, number);
    problem = typeof record === "string" ? record : findMismatch(record.head, stepCount, width);
    if (typeof record === "string" || problem !== null) {
      break;
    }
    const { head, payload } = record;
    isComplete = head.kind === END;
    if (!isComplete) {
      records.push({ offset: at + RECORD_BYTES, stepCount: head.stepCount });
      take(head.stepCount, payload);
    }
    stepCount += head.stepCount;
    at += RECORD_BYTES + payload.length;
  }
  return { document, parts, records, stepCount, isComplete, goodBytes: at, lostBytes: source.size - at, problem };
}

async function hintOf(source: JournalSource): Promise<{ readonly hint?: string }> {
  const isEmpty = await isUnstarted(source);
  return isEmpty ? { hint: "It has no steps. Record again under the same name, or remove it." } : {};
}

/** Returns whether the file has no byte after a first record, so that it never held a step. */
export async function isUnstarted(source: JournalSource): Promise<boolean> {
  const raw = await source.readRange(0, Math.min(source.size, RECORD_BYTES));
  if (raw.length < RECORD_BYTES) {
    const magic = Uint8Array.of(0x57, 0x53, 0x4a, 0x31);
    return raw.subarray(0, 4).every((byte, at) => byte === magic[at]);
  }
  const head = parseHead(raw);
  return head?.kind === BEGIN && source.size <= RECORD_BYTES + head.payloadBytes;
}

/** Returns whether a valid header follows the bytes that could not be read: flushed steps behind the damage. */
export async function hasLaterRecord(source: JournalSource, { goodBytes }: Journal): Promise<boolean> {
  const piece = 1024 * 1024;
  for (let start = goodBytes + 1; start + RECORD_BYTES <= source.size; start += piece) {
    // A header may straddle two pieces.
    const data = await source.readRange(start, Math.min(start + piece + RECORD_BYTES - 1, source.size));
    for (let at = data.indexOf(0x57); at >= 0 && at + RECORD_BYTES <= data.length; at = data.indexOf(0x57, at + 1)) {
      if (parseHead(data.subarray(at, at + RECORD_BYTES)) !== null) {
        return true;
      }
    }
  }
  return false;
}

/** Returns the reason why a valid record cannot follow those before it. */
function findMismatch(head: RecordHead, stepCount: number, width: number): string | null {
  if (head.kind !== STEPS && head.kind !== END) {
    return `there is a record of the kind ${head.kind} among the steps`;
  }
  if (head.firstStep !== stepCount) {
    return `a record begins at step ${head.firstStep} instead of ${stepCount}`;
  }
  if (head.payloadBytes !== head.stepCount * width || (head.kind === END) === head.stepCount > 0) {
    return `a record of ${head.stepCount} steps has ${head.payloadBytes} bytes`;
  }
  return null;
}

/** Returns a record, or the reason why it is not valid. */
async function readRecord(
  source: JournalSource,
  at: number,
  number: number,
): Promise<{ readonly head: RecordHead; readonly payload: Uint8Array } | string> {
  const left = source.size - at - RECORD_BYTES;
  if (left < 0) {
    return `the ${source.size - at} bytes at ${at} are too few for a record`;
  }
  const start = at + RECORD_BYTES;
  const head = parseHead(await source.readRange(at, start));
  if (head === null) {
    return `the record at ${at} has a damaged header`;
  }
  if (head.number !== number) {
    return `the record at ${at} has the number ${head.number} instead of ${number}`;
  }
  if (head.payloadBytes > Math.min(MAX_RECORD_BYTES, left)) {
    return `the record at ${at} promises ${head.payloadBytes} bytes, which the file does not have`;
  }
  const payload = await source.readRange(start, start + head.payloadBytes);
  return crc32c(payload) === head.checksum ? { head, payload } : `the record at ${at} has a damaged payload`;
}

/** Parses the first record: its document, and the parts of a step. */
export function parseBegin(payload: Uint8Array): Pick<Journal, "document" | "parts"> {
  const document = decodeObject(payload, "the first record of the journal");
  return { document, parts: parseParts(document) };
}

function parseParts(document: JsonObject): readonly ChannelSpec[] {
  const listed = member(document, "parts");
  if (member(document, "v") !== 1 || !isList(listed) || !isObject(member(document, "episode"))) {
    throw new CorruptError("the journal does not describe its episode and parts");
  }
  if (listed.length > MAX_CHANNELS) {
    throw new CorruptError(`the journal records ${listed.length} parts; the most is ${MAX_CHANNELS}`);
  }
  return listed.map((item) => {
    if (!isObject(item)) {
      throw new CorruptError("the journal lists a part that is not an object");
    }
    return parseChannel(item);
  });
}

type Content = Pick<Journal, "document" | "parts" | "stepCount">;

/** Returns the metadata blocks of the episode so far, with `extra` members of `meta/episode`. */
export function journalMetadata(journal: Content, extra: JsonObject = {}): ReadonlyMap<string, Uint8Array> {
  const { parts, stepCount } = journal;
  const document = merged(journal.document["episode"] as JsonObject, extra, { length_T: stepCount });
  const channels = parts.filter((part) => CHANNEL.test(part.block));
  const lanes = parts.filter((part) => PREDICTION.test(part.block));
  const blocks = freshMetadata(document, channels, lanes);
  checkParts(journal, parseInfo(blocks));
  return blocks;
}

function describe(journal: Content): EpisodeInfo {
  return parseInfo(journalMetadata(journal));
}

/** Checks that the parts form a valid episode: a journal is foreign input like any file. */
function checkParts({ parts, stepCount }: Content, info: EpisodeInfo): void {
  for (const part of parts) {
    const blockType = findBlockType(part.block, stepBytes(part) * stepCount, info);
    const isShaped = CHANNEL.test(part.block) || sameJson(blockType.shape, part.shape);
    if (part.block.startsWith("meta/") || !blockType.isDeclared || blockType.dtype !== part.dtype || !isShaped) {
      throw new CorruptError(`the journal records '${part.block}' as ${part.dtype}[${part.shape.join(", ")}]`);
    }
    if (stepBytes(part) * stepCount === 0) {
      checkEmptyShape([stepCount, ...part.shape], part.dtype);
    }
  }
  const names = new Set(parts.map((part) => part.block));
  if (names.size !== parts.length || (info.timebase.type === "timestamps_ns" && !names.has(TIMESTAMPS))) {
    throw new CorruptError("the journal records a block twice, or lacks the timestamps of its timebase");
  }
}
