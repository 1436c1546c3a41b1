/**
 * The bytes of a file: memory, a browser's `Blob` or `File`, a file of Node, an HTTP address, or an object of the
 * caller.
 */

import { hasFiles, openForReading, translate } from "#platform";

import { BadInputError, CorruptError, LimitExceededError } from "./errors.js";
import { openHttp, type HttpOptions } from "./http.js";
import { HEAD_GUESS_BYTES, READ_NOW_BYTES } from "./limits.js";
import type { FileHandleLike, OpenFile } from "./platform.js";

/** Immutable bytes, readable by range. `end` is exclusive; requested ranges are always inside of `size`. */
export interface ByteSource {
  readonly size: number;
  readRange(start: number, end: number): Promise<Uint8Array> | Uint8Array;
  close?(): Promise<void> | void;
}

/** The members of a `Blob` or `File` that reading needs. */
export interface BlobLike {
  readonly size: number;
  slice(start: number, end: number): { arrayBuffer(): Promise<ArrayBuffer> };
}

/**
 * Anything that can be opened. A string with an HTTP scheme is an address; any other is a path in Node, and an address
 * relative to the page in a browser. The caller closes a file handle.
 */
export type Source = string | URL | ArrayBuffer | Uint8Array | BlobLike | FileHandleLike | ByteSource;

/** Where bytes are: in memory or on the disk of this machine, at an address, or known only to an object of the caller. */
type Place = "memory" | "file" | "http" | "caller";

/** A source with its first bytes in memory, which checks the length of every answer. */
export class OpenSource {
  private constructor(
    private readonly source: ByteSource,
    private readonly head: Uint8Array,
    private readonly place: Place,
  ) {}

  static async open(where: Source, http: HttpOptions = {}): Promise<OpenSource> {
    const [source, place] = await open(where, http);
    const bare = new OpenSource(source, new Uint8Array(0), place);
    try {
      return new OpenSource(source, await bare.readRange(0, Math.min(source.size, HEAD_GUESS_BYTES)), place);
    } catch (error) {
      await bare.close();
      throw error;
    }
  }

  get size(): number {
    return this.source.size;
  }

  /** True if ranges may be views of memory that belongs to the caller. */
  get isShared(): boolean {
    return this.place === "memory" || this.place === "caller";
  }

  /** True if the whole file is in memory, and ranges are views of it. */
  get isMemory(): boolean {
    return this.place === "memory";
  }

  /** True if the bytes are on this machine, so that reading a whole block early costs no requests. */
  get isLocal(): boolean {
    return this.place === "file";
  }

  /** Returns the bytes at once if the source does, without a promise. */
  readRange(start: number, end: number): Uint8Array | Promise<Uint8Array> {
    if (end <= this.head.length) {
      return this.isShared ? this.head.subarray(start, end) : this.head.slice(start, end);
    }
    let data: Uint8Array | Promise<Uint8Array>;
    try {
      data = this.source.readRange(start, end);
    } catch (cause) {
      throw explain(cause, start, end);
    }
    return data instanceof Uint8Array ? checkLength(data, start, end) : awaitRange(data, start, end);
  }

  async close(): Promise<void> {
    await this.source.close?.();
  }
}

async function awaitRange(data: Promise<Uint8Array>, start: number, end: number): Promise<Uint8Array> {
  try {
    return checkLength(await data, start, end);
  } catch (cause) {
    throw explain(cause, start, end);
  }
}

function checkLength(data: Uint8Array, start: number, end: number): Uint8Array {
  if (data.length !== end - start) {
    throw new CorruptError(`the source gave ${data.length} bytes for ${start}…${end}`);
  }
  return data;
}

/** A file may be valid although a range of it does not fit in memory. */
function explain(cause: unknown, start: number, end: number): unknown {
  return cause instanceof RangeError
    ? new LimitExceededError(`${end - start} bytes do not fit in memory`, { cause })
    : cause;
}

async function open(where: Source, http: HttpOptions): Promise<[source: ByteSource, place: Place]> {
  if (typeof where === "string" || where instanceof URL) {
    const isHttp = /^https?:/i.test(String(where));
    return isHttp || !hasFiles ? [await openHttp(where, http), "http"] : [await openFile(where), "file"];
  }
  // Not instanceof, because the bytes may come from another frame or worker.
  if (ArrayBuffer.isView(where)) {
    return [memory(new Uint8Array(where.buffer, where.byteOffset, where.byteLength)), "memory"];
  }
  if (isBuffer(where)) {
    return [memory(new Uint8Array(where)), "memory"];
  }
  if ("readRange" in where) {
    return [where, "caller"];
  }
  if ("stat" in where) {
    return [{ ...(await file(where, "the file")), close: () => undefined }, "file"];
  }
  if ("slice" in where) {
    return [blob(where), "file"];
  }
  throw new BadInputError(`${Object.prototype.toString.call(where)} is not a source of bytes`);
}

function isBuffer(where: object): where is ArrayBuffer {
  return Object.prototype.toString.call(where) === "[object ArrayBuffer]";
}

function memory(data: Uint8Array): ByteSource {
  return { size: data.length, readRange: (start, end) => data.subarray(start, end) };
}

function blob(data: BlobLike): ByteSource {
  return {
    size: data.size,
    readRange: async (start, end) => new Uint8Array(await data.slice(start, end).arrayBuffer()),
  };
}

async function openFile(path: string | URL): Promise<ByteSource> {
  const handle = await openForReading(path);
  try {
    return await file(handle, String(path));
  } catch (error) {
    await handle.close();
    throw error;
  }
}

async function file(handle: FileHandleLike | OpenFile, name: string): Promise<ByteSource> {
  const { size } = await handle.stat();
  const readNow = (start: number, end: number, read: OpenFile["readNow"]): Uint8Array => {
    const out = new Uint8Array(end - start);
    try {
      let [done, count] = [0, -1];
      for (; done < out.length && count !== 0; done += count) {
        count = read(out, done, start + done);
      }
      return out.subarray(0, done);
    } catch (error) {
      throw translate(error, name);
    }
  };
  const readLater = async (start: number, end: number): Promise<Uint8Array> => {
    const out = new Uint8Array(end - start);
    try {
      let [done, count] = [0, -1];
      for (; done < out.length && count !== 0; done += count) {
        count = (await handle.read(out, done, out.length - done, start + done)).bytesRead;
      }
      return out.subarray(0, done);
    } catch (error) {
      throw translate(error, name);
    }
  };
  return {
    size,
    readRange: (start, end) =>
      "readNow" in handle && end - start <= READ_NOW_BYTES
        ? readNow(start, end, handle.readNow)
        : readLater(start, end),
    close: () => handle.close(),
  };
}
