/**
 * The bytes of a file: memory, a browser's `Blob` or `File`, a file of Node, an HTTP address, or an object of the
 * caller.
 */

import { hasFiles, openForReading, translate } from "#platform";

import { BadInputError, CorruptError, LimitExceededError } from "./errors.js";
import { openHttp } from "./http.js";
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

/** A source with its first bytes in memory, which checks the length of every answer. */
export class OpenSource {
  private constructor(
    private readonly source: ByteSource,
    private readonly head: Uint8Array,
    /** True if ranges may be views of memory that belongs to the caller. */
    readonly isShared: boolean,
  ) {}

  static async open(where: Source): Promise<OpenSource> {
    const [source, isShared] = await open(where);
    const bare = new OpenSource(source, new Uint8Array(0), isShared);
    try {
      return new OpenSource(source, await bare.readRange(0, Math.min(source.size, HEAD_GUESS_BYTES)), isShared);
    } catch (error) {
      await bare.close();
      throw error;
    }
  }

  get size(): number {
    return this.source.size;
  }

  async readRange(start: number, end: number): Promise<Uint8Array> {
    if (end <= this.head.length) {
      return this.isShared ? this.head.subarray(start, end) : this.head.slice(start, end);
    }
    let data: Uint8Array;
    try {
      data = await this.source.readRange(start, end);
    } catch (cause) {
      // A file may be valid although a range of it does not fit in memory.
      throw cause instanceof RangeError
        ? new LimitExceededError(`${end - start} bytes do not fit in memory`, { cause })
        : cause;
    }
    if (data.length !== end - start) {
      throw new CorruptError(`the source gave ${data.length} bytes for ${start}…${end}`);
    }
    return data;
  }

  async close(): Promise<void> {
    await this.source.close?.();
  }
}

async function open(where: Source): Promise<[source: ByteSource, isShared: boolean]> {
  if (typeof where === "string" || where instanceof URL) {
    const isHttp = /^https?:/i.test(String(where));
    return [isHttp || !hasFiles ? await openHttp(where) : await openFile(where), false];
  }
  // Not instanceof, because the bytes may come from another frame or worker.
  if (ArrayBuffer.isView(where)) {
    return [memory(new Uint8Array(where.buffer, where.byteOffset, where.byteLength)), true];
  }
  if (isBuffer(where)) {
    return [memory(new Uint8Array(where)), true];
  }
  if ("readRange" in where) {
    return [where, true];
  }
  if ("stat" in where) {
    return [{ ...(await file(where, "the file")), close: () => undefined }, false];
  }
  if ("slice" in where) {
    return [blob(where), false];
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
  return {
    size,
    readRange: async (start, end) => {
      if ("readNow" in handle && end - start <= READ_NOW_BYTES) {
        return readNow(start, end, handle.readNow);
      }
      const out = new Uint8Array(end - start);
      let done = 0;
      while (done < out.length) {
        let count: number;
        try {
          count = (await handle.read(out, done, out.length - done, start + done)).bytesRead;
        } catch (error) {
          throw translate(error, name);
        }
        if (count === 0) {
          break;
        }
        done += count;
      }
      return out.subarray(0, done);
    },
    close: () => handle.close(),
  };
}
