/**
 * Recording of an episode step by step.
 *
 * Steps are checked, buffered, and appended to a journal beside the target; the end of the episode assembles the file
 * from the journal. Implements "Recording" of the specification.
 */

import { fileExists, pathOf, removeFile, syncDirectoryOf } from "#platform";

import { DONE, REWARD, SERIES_DTYPES, TIMESTAMPS, TRUNCATED } from "./block-type.js";
import { concat } from "./bytes.js";
import { ALIGNMENTS } from "./container.js";
import { prepareDigests } from "./digests.js";
import { AlreadyExistsError, BadInputError, CorruptError, LimitExceededError, SchemaMismatchError } from "./errors.js";
import { BEGIN, END, isUnstarted, readJournal, RECORD_BYTES, sealRecord, STEPS } from "./journal.js";
import type { Json, JsonObject } from "./json-read.js";
import { encodeJson } from "./json-write.js";
import { BUFFER_BYTES, MAX_CHUNK_STEPS, MAX_RECORD_BYTES } from "./limits.js";
import { stepBytes, type ChannelSpec } from "./metadata.js";
import { episodeDocument } from "./metadata-writer.js";
import { completeEpisode, type Timebase } from "./model.js";
import type { JournalFile } from "./platform.js";
import { assemble, checkRecordable, claimOwned, PARTIAL, sourceOf } from "./recovery.js";
import { parseStreamChannel, PartBuffer, partDocument, type StepValue, type StreamChannel } from "./step-values.js";

export interface StreamOptions {
  /** The most steps to buffer: 64, or fewer if their buffers would exceed 16 MiB. */
  readonly flushSteps?: number;
  /**
   * When bytes are forced to the disk. A crash of the process alone loses no flushed step with any of them; a power cut
   * may, except with `flush`, the default.
   */
  readonly fsync?: "flush" | "end" | "never";
  readonly alignment?: 0 | 16 | 32 | 64;
  readonly timeChunkSteps?: number;
  readonly seal?: boolean;
}

/** The description of the episode. */
export interface EpisodeStart {
  readonly envId?: string;
  readonly timebase?: Timebase;
  readonly metadata?: JsonObject;
  readonly attributes?: JsonObject;
}

/** The series of one step. `timestampNs` is required with the timebase `timestamps_ns`, and refused with `ticks`. */
export interface StepSeries {
  readonly reward?: number;
  readonly done?: boolean;
  readonly truncated?: boolean;
  readonly timestampNs?: number | bigint;
}

/**
 * Records one episode in Node through a journal, `path` plus `.partial`, which it owns until it ends, is closed, or its
 * process dies.
 */
export class WShardStreamWriter {
  /** The path of the journal. */
  readonly partialPath: string;
  private readonly path: string;
  private readonly specs: readonly ChannelSpec[];
  private readonly compression: Readonly<Record<string, Json>>;
  private readonly options: Required<StreamOptions>;
  private file: JournalFile | null = null;
  private channels: readonly PartBuffer[] = [];
  private series: readonly PartBuffer[] = [];
  /** The most steps of a record. */
  private rows = 0;
  /** A header, and the rows of each part for the most steps of a record. */
  private record = new Uint8Array(0);
  private steps = 0;
  private flushed = 0;
  private sizeBytes = 0;
  private records = 0;
  private isBegun = false;
  private hasEnd = false;

  /** Checks the declarations. `beginEpisode` creates the journal. */
  constructor(
    path: string | URL,
    private readonly id: string,
    channels: readonly StreamChannel[],
    options: StreamOptions = {},
  ) {
    this.options = { flushSteps: 64, fsync: "flush", alignment: 64, timeChunkSteps: 0, seal: false, ...options };
    checkOptions(this.options);
    this.path = pathOf(path);
    this.partialPath = this.path + PARTIAL;
    const parsed = channels.map(parseStreamChannel);
    this.specs = parsed.map(([spec]) => spec);
    const ids = new Set(this.specs.map((spec) => spec.id));
    const blocks = new Set(this.specs.map((spec) => spec.block));
    if (ids.size !== this.specs.length || blocks.size !== this.specs.length) {
      throw new BadInputError("two channels have the same id or block");
    }
    this.compression = Object.fromEntries(parsed.flatMap(([{ block }, how]) => (how === null ? [] : [[block, how]])));
  }

  /** The number of steps written so far, flushed or not. */
  get stepCount(): number {
    return this.steps;
  }

  /** The number of steps in the journal, which survive a crash. */
  get flushedSteps(): number {
    return this.flushed;
  }

  /**
   * Creates the journal, and owns it. `AlreadyExistsError` if the file or a journal with steps exists, `ConflictError` if
   * another writer owns it.
   */
  async beginEpisode(start: EpisodeStart = {}): Promise<void> {
    if (this.isBegun) {
      throw new BadInputError("the episode has already begun");
    }
    const episode = completeEpisode({ ...start, id: this.id, length: 0 });
    const isTimed = episode.timebase.type === "timestamps_ns";
    const names = [REWARD, DONE, TRUNCATED, ...(isTimed ? [TIMESTAMPS] : [])];
    const series = names.map((name) => ({
      ...{ id: name, dtype: SERIES_DTYPES.get(name)!, shape: [], block: name, attributes: {} },
    }));
    const parts = [...this.specs, ...series];
    const rows = bufferRows(parts, this.options.flushSteps);
    const { alignment, timeChunkSteps, seal } = this.options;
    const payload = encodeJson({
      v: 1,
      episode: episodeDocument(episode),
      parts: parts.map(partDocument),
      save: { alignment, time_chunk_steps: timeChunkSteps, seal, compression: this.compression },
      buffer_steps: rows,
    });
    await prepareDigests();
    checkRecordable(payload);
    const file = await this.claim();
    this.makeBuffers(parts, rows);
    try {
      const record = new Uint8Array(RECORD_BYTES + payload.length);
      record.set(payload, RECORD_BYTES);
      this.append(file, BEGIN, 0, record);
    } catch (error) {
      // A journal without its first record is useless.
      removeFile(this.partialPath);
      file.close();
      throw error;
    }
    [this.file, this.isBegun] = [file, true];
  }

  private makeBuffers(parts: readonly ChannelSpec[], rows: number): void {
    this.rows = rows;
    this.record = new Uint8Array(RECORD_BYTES + rows * sumStepBytes(parts));
    let at = RECORD_BYTES;
    const buffers = parts.map((spec) => {
      const buffer = new PartBuffer(spec, this.record, at, rows);
      at += rows * stepBytes(spec);
      return buffer;
    });
    this.channels = buffers.slice(0, this.specs.length);
    this.series = buffers.slice(this.specs.length);
  }

  /** Creates the journal, or takes over one that a recording left before its first step. */
  private async claim(): Promise<JournalFile> {
    const file = claimOwned(this.partialPath, true);
    try {
      if (!(await isUnstarted(sourceOf(file)))) {
        const hint = "Call recover on it, or remove it.";
        throw new AlreadyExistsError(`${this.partialPath} is left from an earlier recording`, { hint });
      }
      // Checked with the journal in hand: the last owner renames its file before it gives up the journal.
      if (fileExists(this.path)) {
        removeFile(this.partialPath);
        throw new AlreadyExistsError(`${this.path} already exists`);
      }
      file.truncate(0);
      if (this.options.fsync === "flush") {
        syncDirectoryOf(this.path);
      }
      return file;
    } catch (error) {
      file.close();
      throw error;
    }
  }

  /**
   * Adds one step. A flush blocks until the system has the bytes. `SchemaMismatchError`, and nothing is added, if a value
   * is missing, unknown or does not fit.
   */
  writeTimestep(values: Readonly<Record<string, StepValue>>, series: StepSeries = {}): void {
    this.own();
    if (this.hasEnd) {
      throw new BadInputError("the episode has ended", { hint: "Call endEpisode again if it failed." });
    }
    // A failed flush may have left the buffers full.
    if (this.steps - this.flushed === this.rows) {
      this.flush();
    }
    const row = this.steps - this.flushed;
    try {
      const names = Object.keys(values);
      if (names.length !== this.channels.length) {
        throw this.nameMismatch(names);
      }
      const arrays = this.channels.map((channel) => {
        if (!Object.hasOwn(values, channel.spec.id)) {
          throw this.nameMismatch(names);
        }
        return channel.check(values[channel.spec.id]);
      });
      const numbers = this.checkSeries(series);
      this.channels.forEach((channel, at) => channel.put(row, arrays[at]!));
      this.series.forEach((part, at) => part.putNumber(row, numbers[at]!));
    } catch (cause) {
      throw cause instanceof SchemaMismatchError
        ? new SchemaMismatchError(`step ${this.steps}: ${cause.message}`, { cause })
        : cause;
    }
    this.steps++;
    if (row + 1 === this.rows) {
      this.flush();
    }
  }

  private nameMismatch(given: readonly string[]): SchemaMismatchError {
    const known = this.specs.map((spec) => spec.id);
    const differing = [...known.filter((id) => !given.includes(id)), ...given.filter((id) => !known.includes(id))];
    return new SchemaMismatchError(`the step has missing or unknown channels: ${differing.sort().join(", ")}`);
  }

  /** Returns the checked numbers of the series, in their order. */
  private checkSeries(series: StepSeries): readonly (number | bigint)[] {
    const { reward = 0, done = false, truncated = false, timestampNs } = series;
    if (typeof reward !== "number" || (Number.isFinite(reward) && !Number.isFinite(Math.fround(reward)))) {
      throw new SchemaMismatchError(`the reward ${String(reward)} is not a number that an f32 can hold`);
    }
    if (typeof done !== "boolean" || typeof truncated !== "boolean") {
      throw new SchemaMismatchError(`done is ${String(done)} and truncated ${String(truncated)}, not booleans`);
    }
    const isTimed = this.series.at(-1)!.spec.block === TIMESTAMPS;
    if ((timestampNs === undefined) === isTimed) {
      throw new SchemaMismatchError(`timestampNs is ${String(timestampNs)}, which contradicts the timebase`);
    }
    const numbers = [reward, Number(done), Number(truncated)];
    if (timestampNs === undefined) {
      return numbers;
    }
    const isWhole = typeof timestampNs === "bigint" || Number.isSafeInteger(timestampNs);
    const time = isWhole ? BigInt(timestampNs) : 0n;
    if (!isWhole || BigInt.asIntN(64, time) !== time) {
      throw new SchemaMismatchError(`timestampNs is ${String(timestampNs)}, not an integer of 64 bits`, {
        hint: "Pass a bigint; a number is exact only up to 2⁵³.",
      });
    }
    return [...numbers, time];
  }

  /** Appends the buffered steps to the journal. After a failure they stay buffered, for another attempt. */
  flush(): void {
    const file = this.own();
    const count = this.steps - this.flushed;
    if (count === 0) {
      return;
    }
    if (count === this.rows) {
      this.append(file, STEPS, count, this.record);
      return;
    }
    const parts = [...this.channels, ...this.series].map(({ bytes }) =>
      bytes.subarray(0, (bytes.length / this.rows) * count),
    );
    this.append(file, STEPS, count, concat([new Uint8Array(RECORD_BYTES), ...parts]));
  }

  /** Appends one record, whose first 40 bytes are free for its header. */
  private append(file: JournalFile, kind: number, stepCount: number, record: Uint8Array): void {
    sealRecord(record, { kind, number: this.records, firstStep: this.flushed, stepCount });
    try {
      // A failure may have left a record that was not counted.
      if (file.sizeBytes() !== this.sizeBytes) {
        file.truncate(this.sizeBytes);
      }
      file.append(record);
      if (this.options.fsync === "flush") {
        file.sync();
      }
    } catch (error) {
      try {
        file.truncate(this.sizeBytes);
      } catch {
        // The next append truncates again. Report the original failure.
      }
      throw error;
    }
    this.sizeBytes += record.length;
    this.records++;
    this.flushed += stepCount;
  }

  /**
   * Flushes, assembles the file, renames it into place, removes the journal, and returns the path of the file. After a
   * failure, such as a full disk, it can be called again.
   */
  async endEpisode(): Promise<string> {
    const file = this.own();
    if (!this.hasEnd) {
      this.flush();
      this.append(file, END, 0, new Uint8Array(RECORD_BYTES));
      this.hasEnd = true;
    }
    if (this.options.fsync === "end") {
      file.sync();
    }
    const journal = await readJournal(sourceOf(file));
    if (!journal.isComplete || journal.stepCount !== this.steps || !file.isNamed()) {
      throw new CorruptError(`another process changed ${this.partialPath}: ${journal.problem}`);
    }
    await assemble(journal, file, this.path, {}, this.options.fsync !== "never");
    // The journal is removed by its owner, so that no other recording can take its name before.
    removeFile(this.partialPath);
    this.release();
    return this.path;
  }

  /**
   * Flushes an episode that was not ended, and gives up its journal, which stays for `recover`. Does nothing after
   * `endEpisode`.
   */
  close(): void {
    if (this.file === null) {
      return;
    }
    try {
      if (!this.hasEnd) {
        this.flush();
      }
    } finally {
      this.release();
    }
  }

  private release(): void {
    this.file?.close();
    this.file = null;
  }

  private own(): JournalFile {
    if (this.file === null) {
      throw new BadInputError("no episode is being recorded", { hint: "Call beginEpisode first." });
    }
    return this.file;
  }
}

function checkOptions({ flushSteps, fsync, alignment, timeChunkSteps }: Required<StreamOptions>): void {
  const isCounted = Number.isInteger(flushSteps) && flushSteps > 0 && Number.isInteger(timeChunkSteps);
  const isBounded = timeChunkSteps >= 0 && timeChunkSteps <= MAX_CHUNK_STEPS;
  if (!isCounted || !isBounded || !["flush", "end", "never"].includes(fsync) || !ALIGNMENTS.includes(alignment)) {
    throw new BadInputError(
      `fsync ${String(fsync)}, alignment ${alignment}, flushSteps ${flushSteps} or timeChunkSteps ${timeChunkSteps} is not valid`,
    );
  }
}

/** Returns the number of steps to buffer: `flushSteps`, or fewer if they would not fit. */
function bufferRows(parts: readonly ChannelSpec[], flushSteps: number): number {
  const width = sumStepBytes(parts);
  if (width > MAX_RECORD_BYTES) {
    throw new LimitExceededError(`one step takes ${width} bytes; the most is ${MAX_RECORD_BYTES}`);
  }
  return Math.max(1, Math.min(flushSteps, Math.floor(BUFFER_BYTES / width)));
}

function sumStepBytes(parts: readonly ChannelSpec[]): number {
  return parts.reduce((sum, part) => sum + stepBytes(part), 0);
}
