/**
 * The journal of a running recording, read only.
 *
 * Checksums detect a record that a crash left incomplete; the records before it are valid. Implements the reading
 * half of "Journal" of the specification.
 */

import { concat, readU64, viewOf } from "./bytes.js";
import { crc32c, prepareDigests } from "./digests.js";
import { decodeArray } from "./dtypes.js";
import { freshMetadata } from "./metadata-writer.js";
import { BadInputError, CorruptError } from "./errors.js";
import { decodeObject, isList, isObject, member, merged, type JsonObject } from "./json-read.js";
import { MAX_CHANNELS, MAX_JSON_BYTES, MAX_RECORD_BYTES } from "./limits.js";
import { DONE, findBlockType, REWARD, TIMESTAMPS, TRUNCATED } from "./block-type.js";
import { parseChannel, parseInfo, stepBytes, type ChannelSpec, type EpisodeInfo } from "./metadata.js";
import { completeEpisode, type Channel, type Episode } from "./model.js";
import type { OpenSource } from "./source.js";

const MAGIC = 0x314a5357;
const RECORD_BYTES = 40;
const CHANNEL = /^(signal|action)\//;
const PREDICTION = /^(omen|uncert)\//;
/** Kinds of records; the third one, the end mark, has no payload. */
const [BEGIN, STEPS] = [1, 2] as const;

interface Journal {
  readonly document: JsonObject;
  readonly parts: readonly ChannelSpec[];
  /** The payloads of the valid steps records, with the number of steps in each. */
  readonly payloads: readonly (readonly [stepCount: number, payload: Uint8Array])[];
  readonly stepCount: number;
}

interface JournalRecord {
  readonly kind: number;
  readonly firstStep: number;
  readonly stepCount: number;
  readonly payload: Uint8Array;
}

export async function isJournal(source: OpenSource): Promise<boolean> {
  return source.size >= 4 && viewOf(await source.readRange(0, 4)).getUint32(0, true) === MAGIC;
}

/** Returns the steps flushed so far. `channels` selects some, by id or block name. */
export async function loadJournal(source: OpenSource, channels: readonly string[] | null): Promise<Episode> {
  const journal = await readJournal(source);
  const info = describe(journal);
  const taken = new Map<string, Channel>();
  let before = 0;
  for (const part of journal.parts) {
    const isSeries = !part.block.includes("/") || part.block === TIMESTAMPS;
    if (channels === null || isSeries || channels.includes(part.id) || channels.includes(part.block)) {
      taken.set(part.block, readPart(journal, part, before));
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

function readPart(journal: Journal, part: ChannelSpec, before: number): Channel {
  const width = stepBytes(part);
  const payloads = width === 0 ? [] : journal.payloads;
  const pieces = payloads.map(([count, payload]) => payload.subarray(before * count, (before + width) * count));
  const array = decodeArray(concat(pieces), part.dtype, [journal.stepCount, ...part.shape]);
  return { ...array, id: part.id, attributes: part.attributes, isDeclared: true };
}

/** Reads and verifies every record. Throws only if the first one is not valid. */
async function readJournal(source: OpenSource): Promise<Journal> {
  await prepareDigests();
  const first = await readRecord(source, 0, 0);
  if (first === null || first.kind !== BEGIN || first.payload.length > MAX_JSON_BYTES) {
    throw new CorruptError("the journal has no valid first record");
  }
  const document = decodeObject(first.payload, "the first record of the journal");
  const parts = parseParts(document);
  const width = parts.reduce((sum, part) => sum + stepBytes(part), 0);
  const payloads: (readonly [number, Uint8Array])[] = [];
  let [at, stepCount] = [RECORD_BYTES + first.payload.length, 0];
  for (let number = 1; at < source.size; number++) {
    const record = await readRecord(source, at, number);
    if (record?.kind !== STEPS || !follows(record, stepCount, width)) {
      break;
    }
    payloads.push([record.stepCount, record.payload]);
    stepCount += record.stepCount;
    at += RECORD_BYTES + record.payload.length;
  }
  return { document, parts, payloads, stepCount };
}

function follows(record: JournalRecord, stepCount: number, width: number): boolean {
  return record.firstStep === stepCount && record.stepCount > 0 && record.payload.length === record.stepCount * width;
}

/** Returns a record if the record is valid. */
async function readRecord(source: OpenSource, at: number, number: number): Promise<JournalRecord | null> {
  if (source.size - at < RECORD_BYTES) {
    return null;
  }
  const raw = await source.readRange(at, at + RECORD_BYTES);
  const head = viewOf(raw);
  const isWhole = head.getUint32(0, true) === MAGIC && crc32c(raw.subarray(0, 36)) === head.getUint32(36, true);
  const payloadBytes = readU64(head, 24);
  const start = at + RECORD_BYTES;
  if (!isWhole || head.getUint32(8, true) !== number) {
    return null;
  }
  if (payloadBytes > Math.min(MAX_RECORD_BYTES, source.size - start)) {
    return null;
  }
  const payload = await source.readRange(start, start + payloadBytes);
  if (crc32c(payload) !== head.getUint32(32, true)) {
    return null;
  }
  const [firstStep, stepCount] = [readU64(head, 12), head.getUint32(20, true)];
  return { kind: head.getUint8(4), firstStep, stepCount, payload };
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

/** Describes the episode so far. A journal is foreign input like any file. */
function describe(journal: Journal): EpisodeInfo {
  const { parts, stepCount } = journal;
  const document = merged(journal.document["episode"] as JsonObject, { length_T: stepCount });
  const channels = parts.filter((part) => CHANNEL.test(part.block));
  const lanes = parts.filter((part) => PREDICTION.test(part.block));
  const info = parseInfo(freshMetadata(document, channels, lanes));
  for (const part of parts) {
    const blockType = findBlockType(part.block, stepBytes(part) * stepCount, info);
    const isShaped = CHANNEL.test(part.block) || blockType.shape.length === part.shape.length;
    if (part.block.startsWith("meta/") || !blockType.isDeclared || blockType.dtype !== part.dtype || !isShaped) {
      throw new CorruptError(`the journal records '${part.block}' as ${part.dtype}[${part.shape.join(", ")}]`);
    }
  }
  const names = new Set(parts.map((part) => part.block));
  if (names.size !== parts.length || (info.timebase.type === "timestamps_ns" && !names.has(TIMESTAMPS))) {
    throw new CorruptError("the journal records a block twice, or lacks the timestamps of its timebase");
  }
  return info;
}
