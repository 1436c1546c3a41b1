/**
 * The index of an encoded block: the offset, size and time of each frame, so that single frames can be read.
 *
 * Returns the bytes of frames and does not decode them. Implements "Frame index" of the specification.
 */

import { concat, encodeText, readU64, viewOf, writeU64 } from "./bytes.js";
import { BadInputError, CorruptError, LimitExceededError, UnsupportedError } from "./errors.js";
import { MAX_EXTRADATA_BYTES, MAX_FRAME_BYTES, MAX_FRAMES } from "./limits.js";

const MAGIC = 0x49465357;
const VERSION = 1;
const HEADER_BYTES = 32;
const ENTRY_BYTES = 32;
const MAX_CODEC_BYTES = 64;
const [KEY, HIDDEN] = [1, 2] as const;

/** One frame: its bytes within the decoded block, their CRC-32C, and the time at which it is shown. */
export interface FrameEntry {
  readonly offset: number;
  readonly sizeBytes: number;
  readonly checksum: number;
  readonly timeNs: bigint;
  /** The frame can be decoded alone. */
  readonly isKey: boolean;
  /** The frame is decoded but not shown. */
  readonly isHidden: boolean;
}

/** Returns the name of the block that holds the frame index of `block`. */
export function framesBlock(block: string): string {
  return `frames/${block}`;
}

/**
 * The frames of a block. `entries` are in decoding order; frames are numbered from 0 in the order they are shown.
 *
 * `codec` is FFmpeg's name of the codec, or `jpeg` or `png`. `extradata` configures the decoder.
 */
export class FrameIndex {
  /** The entry of each frame. */
  private readonly shown: readonly number[];
  /** The key entry at which decoding of each entry begins, or −1. */
  private readonly starts: Int32Array;

  /** Throws `CorruptError` unless every frame can be decoded. */
  constructor(
    readonly codec: string,
    readonly extradata: Uint8Array,
    readonly entries: readonly FrameEntry[],
  ) {
    const times = entries.map((entry) => entry.timeNs);
    this.shown = [...entries.keys()]
      .filter((number) => !entries[number]!.isHidden)
      .sort((left, right) => (times[left]! < times[right]! ? -1 : times[left]! > times[right]! ? 1 : 0));
    if (this.shown.some((number, frame) => frame > 0 && times[number] === times[this.shown[frame - 1]!])) {
      throw new CorruptError("two frames are shown at the same time");
    }
    this.starts = findStarts(entries);
    if (this.shown.some((number) => this.starts[number]! < 0)) {
      throw new CorruptError("the frame index has a frame without a preceding key frame");
    }
    if ((codec === "jpeg" || codec === "png") && !this.shown.every((number) => entries[number]!.isKey)) {
      throw new CorruptError("the frame index has an image that is not a key frame");
    }
  }

  /** The number of frames that are shown. */
  get length(): number {
    return this.shown.length;
  }

  /** The times at which the frames are shown, ascending. */
  get timesNs(): BigInt64Array {
    return BigInt64Array.from(this.shown, (number) => this.entries[number]!.timeNs);
  }

  /** The GOP of each frame, counted from 0: the frames whose decoding begins at the same entry. */
  get groupNumbers(): Int32Array {
    const starts = this.shown.map((number) => this.starts[number]!);
    const numbers = new Map([...new Set(starts)].sort((left, right) => left - right).map((start, at) => [start, at]));
    return Int32Array.from(starts, (start) => numbers.get(start)!);
  }

  /** Returns the frame that is shown at a time: the last one up to then, or the first one if none is. */
  frameAt(timeNs: bigint | number): number {
    let [low, high] = [0, this.shown.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      // A bigint and a number compare exactly.
      if (this.entries[this.shown[middle]!]!.timeNs <= timeNs) {
        low = middle;
      } else {
        high = middle;
      }
    }
    this.entryOf(low);
    return low;
  }

  /** Returns the entry number of a frame. */
  entryOf(frame: number): number {
    const number = this.shown[frame];
    if (number === undefined) {
      throw new BadInputError(`there is no frame ${frame}; the block has ${this.length}, numbered from 0`);
    }
    return number;
  }

  /** Returns the range of entries, in decoding order, from which frames `first` to `last`, both included, are decoded. */
  entrySpan(first: number, last: number): readonly [start: number, stop: number] {
    this.entryOf(first);
    this.entryOf(last);
    if (first > last) {
      throw new BadInputError(`frame ${first} is after frame ${last}`);
    }
    let [start, stop] = [this.entries.length, 0];
    for (const number of this.shown.slice(first, last + 1)) {
      start = Math.min(start, this.starts[number]!);
      stop = Math.max(stop, number + 1);
    }
    return [start, stop];
  }

  /** Returns the bytes of the index block of an encoded block of `sizeBytes`; refuses an index that no reader accepts. */
  encode(sizeBytes: number): Uint8Array {
    const codec = encodeText(this.codec);
    const head = new Uint8Array(HEADER_BYTES);
    const view = viewOf(head);
    view.setUint32(0, MAGIC, true);
    view.setUint16(4, VERSION, true);
    view.setUint16(6, ENTRY_BYTES, true);
    writeU64(view, 8, this.entries.length);
    view.setUint32(16, codec.length, true);
    view.setUint32(20, this.extradata.length, true);
    const rows = new Uint8Array(ENTRY_BYTES * this.entries.length);
    this.entries.forEach((entry, number) => encodeEntry(entry, viewOf(rows), ENTRY_BYTES * number));
    const data = concat([head, codec, this.extradata, rows]);
    try {
      parseFrames(data, sizeBytes);
    } catch (cause) {
      if (cause instanceof CorruptError || cause instanceof UnsupportedError) {
        throw new BadInputError(`the frame index cannot be written: ${cause.message}`, { cause });
      }
      throw cause;
    }
    return data;
  }
}

function encodeEntry(entry: FrameEntry, view: DataView, at: number): void {
  const { offset, sizeBytes, checksum, timeNs, isKey, isHidden } = entry;
  if (![offset, sizeBytes, checksum].every((count) => Number.isSafeInteger(count) && count >= 0)) {
    throw new BadInputError(`a frame of ${sizeBytes} bytes at ${offset} cannot be written`);
  }
  writeU64(view, at, offset);
  view.setUint32(at + 8, sizeBytes, true);
  view.setUint32(at + 12, checksum, true);
  view.setBigInt64(at + 16, timeNs, true);
  view.setUint32(at + 24, (isKey ? KEY : 0) | (isHidden ? HIDDEN : 0), true);
}

/** Parses and checks the index of a block of `sizeBytes`. */
export function parseFrames(data: Uint8Array, sizeBytes: number): FrameIndex {
  if (data.length < HEADER_BYTES) {
    throw new CorruptError(`the frame index has ${data.length} bytes; its header alone takes ${HEADER_BYTES}`);
  }
  const view = viewOf(data);
  if (view.getUint32(0, true) !== MAGIC) {
    throw new CorruptError(`the frame index begins with 0x${view.getUint32(0, true).toString(16)}`);
  }
  const [version, width] = [view.getUint16(4, true), view.getUint16(6, true)];
  if (version !== VERSION || width !== ENTRY_BYTES || view.getBigUint64(24, true) !== 0n) {
    throw new UnsupportedError(`the frame index has the version ${version}, with entries of ${width} bytes`);
  }
  const [count, codecBytes, extraBytes] = [readU64(view, 8), view.getUint32(16, true), view.getUint32(20, true)];
  const isNamed = codecBytes > 0 && codecBytes <= MAX_CODEC_BYTES;
  if (count > MAX_FRAMES || extraBytes > MAX_EXTRADATA_BYTES || !isNamed) {
    throw new LimitExceededError(
      `the frame index has ${count} frames, ${extraBytes} bytes of extradata, ${codecBytes} of codec`,
    );
  }
  const body = HEADER_BYTES + codecBytes;
  if (data.length !== body + extraBytes + count * ENTRY_BYTES) {
    throw new CorruptError(`the frame index has ${data.length} bytes, which do not fit its ${count} frames`);
  }
  const codec = data.subarray(HEADER_BYTES, body);
  if (codec.some((byte) => byte > 127)) {
    throw new CorruptError("the codec of the frame index is not ASCII");
  }
  const extradata = data.slice(body, body + extraBytes);
  return new FrameIndex(String.fromCharCode(...codec), extradata, parseEntries(view, body + extraBytes, sizeBytes));
}

function parseEntries(view: DataView, from: number, sizeBytes: number): FrameEntry[] {
  const entries: FrameEntry[] = [];
  let hasUnknownFlags = false;
  for (let at = from; at < view.byteLength; at += ENTRY_BYTES) {
    const [offset, size, flags] = [readU64(view, at), view.getUint32(at + 8, true), view.getUint32(at + 24, true)];
    if (offset + size > sizeBytes) {
      throw new CorruptError(`a frame at ${offset}+${size} is outside the ${sizeBytes} bytes of its block`);
    }
    hasUnknownFlags ||= (flags & ~(KEY | HIDDEN)) !== 0 || view.getUint32(at + 28, true) !== 0;
    entries.push({
      offset,
      sizeBytes: size,
      checksum: view.getUint32(at + 12, true),
      timeNs: view.getBigInt64(at + 16, true),
      isKey: (flags & KEY) !== 0,
      isHidden: (flags & HIDDEN) !== 0,
    });
  }
  if (hasUnknownFlags) {
    throw new UnsupportedError("the frame index has unknown flags");
  }
  return entries;
}

/** Groups entries whose bytes follow one another, within the bound of a frame. */
export function adjacentRuns(entries: readonly FrameEntry[]): readonly (readonly FrameEntry[])[] {
  const runs: FrameEntry[][] = [];
  let [end, runBytes] = [-1, 0];
  for (const entry of entries) {
    const isNext = entry.offset === end && runBytes + entry.sizeBytes <= MAX_FRAME_BYTES;
    if (isNext) {
      runs.at(-1)!.push(entry);
    } else {
      runs.push([entry]);
    }
    runBytes = (isNext ? runBytes : 0) + entry.sizeBytes;
    end = entry.offset + entry.sizeBytes;
  }
  return runs;
}

/** Returns the last key entry at or before each entry that is not shown later than it. */
function findStarts(entries: readonly FrameEntry[]): Int32Array {
  const starts = new Int32Array(entries.length).fill(-1);
  // A key frame that is shown after a later key frame is dropped, so the times of the remaining ones ascend.
  const keys: number[] = [];
  const timeOf = (number: number): bigint => entries[number]!.timeNs;
  for (const [number, { timeNs, isKey }] of entries.entries()) {
    if (isKey) {
      while (keys.length > 0 && timeOf(keys.at(-1)!) >= timeNs) {
        keys.pop();
      }
      keys.push(number);
    }
    let [low, high] = [0, keys.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      [low, high] = timeOf(keys[middle]!) <= timeNs ? [middle + 1, high] : [low, middle];
    }
    starts[number] = low > 0 ? keys[low - 1]! : -1;
  }
  return starts;
}
