/**
 * Loading of an episode into memory, from a finished file or from a journal.
 *
 * Every block ends up in a field of `Episode` if the format defines its meaning, and in `extra` otherwise. Saving
 * writes all of them back. Implements "Block types" of the specification.
 */

import { sameBytes } from "./bytes.js";
import { loadChunks } from "./chunk-load.js";
import { ROLE_MANIFEST, type BlockEntry } from "./container.js";
import { decodeArray, type DType, type NdArray } from "./dtypes.js";
import { CorruptError, LimitExceededError, NotFoundError, UnsupportedError } from "./errors.js";
import { isJournal, loadJournal } from "./journal.js";
import type { ChunkOpener } from "./joined.js";
import type { HttpOptions } from "./http.js";
import { decodeObject } from "./json-read.js";
import { MAX_PARALLEL_READS, MAX_READ_BYTES, READ_EXPANSION } from "./limits.js";
import { DONE, REWARD, TIMESTAMPS, TRUNCATED } from "./block-type.js";
import { META_BLOCKS, META_EPISODE, type EpisodeInfo } from "./metadata.js";
import type { Block, Channel, Episode } from "./model.js";
import { asEpisode, readContainer, type BlockReader, type WShardFile } from "./reader.js";
import { META_IDENTITY, META_PROVENANCE } from "./identity.js";
import { OpenSource, type Source } from "./source.js";

export interface LoadOptions {
  /** Selects channels by id or block name, without predictions and uninterpreted blocks. */
  readonly channels?: readonly string[];
  /** Opens the chunks of a manifest; needed if the manifest is no path and no address. */
  readonly open?: ChunkOpener;
  /** Headers, credentials and the like, if `where` is an address. */
  readonly http?: HttpOptions;
}

/** The field of each series, and its required type. */
export const SERIES = {
  [REWARD]: ["rewards", "f32"],
  [DONE]: ["terminations", "bool"],
  [TRUNCATED]: ["truncations", "bool"],
  [TIMESTAMPS]: ["timestampsNs", "i64"],
} as const satisfies Record<string, readonly [keyof Episode, DType]>;

const GROUPS = {
  signal: "observations",
  action: "actions",
  omen: "omens",
  uncert: "uncertainties",
  residual: "residuals",
} as const;

/**
 * Loads the episode into arrays of its own, with every checksum verified. A journal (`….partial`) gives the steps
 * flushed so far, also while it is being written. A manifest loads all its chunks, verified and joined.
 */
export async function loadWShard(where: Source, options: LoadOptions = {}): Promise<Episode> {
  const source = await OpenSource.open(where, options.http);
  if (await isJournal(source)) {
    try {
      return await loadJournal(source, options.channels ?? null);
    } finally {
      await source.close();
    }
  }
  const container = await readContainer(source);
  if (container.header.role === ROLE_MANIFEST) {
    await container.close();
    return loadChunks(where, options);
  }
  const file = await asEpisode(container);
  try {
    return await loadFile(file, options.channels ?? null);
  } finally {
    await file.close();
  }
}

async function loadFile(file: WShardFile, channels: readonly string[] | null): Promise<Episode> {
  const info = await file.info();
  if (info === null) {
    throw new CorruptError(`there is no block '${META_EPISODE}'`);
  }
  const wanted = channels === null ? null : wantedBlocks(channels, file, info);
  const names = file.blocks.filter((name) => wanted === null || wanted.has(name) || Object.hasOwn(SERIES, name));
  checkSize(names.map((name) => file.block(name).entry));
  const parts = new Parts(info);
  const taken = await inParallel(names, (name) => take(file.block(name), file.isShared));
  for (const part of taken) {
    parts.add(part);
  }
  const episode = parts.episode();
  if (wanted !== null) {
    return episode;
  }
  const entries = file.blocks.map((name) => file.block(name).entry);
  const layout = entries.map((entry) => [entry.name, entry.contentType, entry.tags] as const);
  return { ...episode, origin: { layout, verbatim: parts.verbatim, isSealed: file.has(META_IDENTITY) } };
}

/** Bounds the sum of all decoded blocks. Each block has its own bound, but a small file may hold many. */
function checkSize(entries: readonly BlockEntry[]): void {
  const packed = entries.filter((entry) => entry.codec !== "none");
  const stored = packed.reduce((sum, entry) => sum + entry.storedBytes, 0);
  const decoded = packed.reduce((sum, entry) => sum + entry.sizeBytes, 0);
  if (decoded > Math.max(MAX_READ_BYTES, READ_EXPANSION * stored)) {
    throw new LimitExceededError(
      `the blocks would take ${decoded} bytes, decoded from ${stored}: too many to load at once`,
      { hint: "Name some channels, or read windows with openWShard." },
    );
  }
}

function wantedBlocks(channels: readonly string[], file: WShardFile, info: EpisodeInfo): ReadonlySet<string> {
  const specs = [...info.channels.values()];
  const out = new Set<string>();
  for (const name of channels) {
    const named = specs.filter((spec) => spec.id === name).map((spec) => spec.block);
    const found = [name, `signal/${name}`, `action/${name}`, ...named].filter((block) => file.has(block));
    if (found.length === 0) {
      const some = specs.map((spec) => spec.id).join(", ");
      throw new NotFoundError(`there is no channel '${name}'`, { hint: `Channels: ${some}.` });
    }
    found.forEach((block) => out.add(block));
  }
  return out;
}

/** One block of the file. `raw` is memory of its own. */
interface Taken {
  readonly reader: BlockReader;
  readonly raw: Uint8Array;
  readonly array: NdArray | null;
  readonly isDeclared: boolean;
}

async function take(reader: BlockReader, isShared: boolean): Promise<Taken> {
  const { name, codec } = reader.entry;
  // Check the declaration against the size before anything is read.
  const blockType = fieldOf(name) === null ? null : await reader.blockType();
  const bytes = await reader.raw();
  const raw = isShared && codec === "none" ? bytes.slice() : bytes;
  const array = blockType === null ? null : decodeArray(raw, blockType.dtype, [blockType.rows, ...blockType.shape]);
  return { reader, raw, array, isDeclared: blockType?.isDeclared ?? false };
}

/** Returns the group or series of a block, if any. */
function fieldOf(name: string): keyof typeof GROUPS | keyof typeof SERIES | null {
  if (Object.hasOwn(SERIES, name)) {
    return name as keyof typeof SERIES;
  }
  const slash = name.indexOf("/");
  const lane = name.slice(0, slash);
  return slash > 0 && slash + 1 < name.length && Object.hasOwn(GROUPS, lane) ? (lane as keyof typeof GROUPS) : null;
}

/** The blocks read from a file so far. */
class Parts {
  readonly verbatim = new Map<string, Uint8Array>();
  private readonly groups = {
    observations: new Map<string, Channel>(),
    actions: new Map<string, Channel>(),
    omens: new Map<string, Channel>(),
    uncertainties: new Map<string, Channel>(),
    residuals: new Map<string, Channel>(),
  };
  private readonly series = new Map<string, NdArray>();
  private readonly extra = new Map<string, Block>();

  constructor(private readonly info: EpisodeInfo) {}

  add({ reader, raw, array, isDeclared }: Taken): void {
    const { name, contentType, tags } = reader.entry;
    if (META_BLOCKS.includes(name) || name === META_PROVENANCE) {
      this.verbatim.set(name, raw);
      return;
    }
    if (name === META_IDENTITY) {
      return;
    }
    if (array === null) {
      this.extra.set(name, { data: raw, contentType, tags });
      return;
    }
    if (array.dtype === "bool" && !sameBytes(array.data, raw)) {
      // The file stores true as another byte than 1. Saving must write the same bytes.
      this.verbatim.set(name, raw);
    }
    const field = fieldOf(name)!;
    if (field in SERIES) {
      this.series.set(name, array);
      return;
    }
    const rest = name.slice(name.indexOf("/") + 1);
    const spec = this.info.channels.get(name) ?? this.info.lanes.get(name);
    const words = { id: spec?.id ?? rest, attributes: spec?.attributes ?? {}, isDeclared };
    this.groups[GROUPS[field as keyof typeof GROUPS]].set(rest, { ...array, ...words });
  }

  episode(): Episode {
    const { info } = this;
    if (info.timebase.type === "timestamps_ns" && !this.series.has(TIMESTAMPS)) {
      throw new CorruptError(`the timebase is timestamps_ns, but there is no block '${TIMESTAMPS}'`);
    }
    const provenance = this.verbatim.get(META_PROVENANCE);
    return {
      id: info.id,
      length: info.length,
      envId: info.envId,
      timebase: info.timebase,
      ...this.groups,
      rewards: this.one(REWARD, "f32"),
      terminations: this.one(DONE, "bool"),
      truncations: this.one(TRUNCATED, "bool"),
      timestampsNs: this.one(TIMESTAMPS, "i64"),
      metadata: info.metadata,
      attributes: info.attributes,
      chunk: info.chunk,
      provenance: provenance === undefined ? null : decodeObject(provenance, META_PROVENANCE),
      extra: this.extra,
      origin: null,
    };
  }

  private one<D extends DType>(name: string, dtype: D): NdArray<D>["data"] | null {
    const array = this.series.get(name);
    if (array === undefined) {
      return null;
    }
    if (array.dtype !== dtype || array.shape.length !== 1 || array.shape[0] !== this.info.length) {
      const shown = `${array.dtype}[${array.shape.join(", ")}]`;
      throw new UnsupportedError(`block '${name}' is declared as ${shown}, not as ${dtype} for each step`, {
        hint: "Read it with openWShard.",
      });
    }
    return array.data as NdArray<D>["data"];
  }
}

/** Runs some at a time, and returns the results in order. Of several failures, the first in order is thrown. */
async function inParallel<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const out: R[] = [];
  const failures = new Map<number, unknown>();
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < items.length && failures.size === 0) {
      const at = next++;
      try {
        out[at] = await work(items[at]!);
      } catch (error) {
        failures.set(at, error);
      }
    }
  };
  await Promise.all(Array.from({ length: MAX_PARALLEL_READS }, worker));
  if (failures.size > 0) {
    throw failures.get(Math.min(...failures.keys()));
  }
  return out;
}
