/**
 * Bytes at an HTTP address, fetched by range. The first request returns the size and the beginning.
 *
 * A server that answers a range with the whole file is refused: a window must not cost the whole file.
 */

import { AccessDeniedError, ObjectNotFoundError, StorageError, UnsupportedError } from "./errors.js";
import { HEAD_GUESS_BYTES } from "./limits.js";
import type { ByteSource } from "./source.js";

/** The members of the standard `Response` that reading needs. */
export interface ResponseLike {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  readonly body?: { cancel(): Promise<void> } | null;
  arrayBuffer(): Promise<ArrayBuffer>;
}

export type FetchLike = (
  url: string,
  init: {
    readonly method: string;
    readonly headers: Record<string, string>;
    readonly credentials?: "omit" | "same-origin" | "include";
    readonly signal?: AbortSignal;
  },
) => Promise<ResponseLike>;

export interface HttpOptions {
  /** Used instead of the global `fetch`, for example to sign or count requests. */
  readonly fetch?: FetchLike;
  /** Sent with every request, for example `Authorization`. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Whether a browser sends cookies; like in `fetch`, only to the same origin by default. */
  readonly credentials?: "omit" | "same-origin" | "include";
  /** Aborts requests, for example when a viewer is closed. */
  readonly signal?: AbortSignal;
}

/** Opens an address whose server answers range requests. */
export async function openHttp(url: string | URL, options: HttpOptions = {}): Promise<ByteSource> {
  const address = String(url);
  const fetching = options.fetch ?? (globalThis.fetch as FetchLike);
  const { credentials, signal } = options;
  const shared = { ...(credentials === undefined ? {} : { credentials }), ...(signal === undefined ? {} : { signal }) };
  const request = async (method: string, range: string | null): Promise<ResponseLike> => {
    // A content encoding would change the bytes. Browsers forbid the header and handle this themselves.
    const headers = { "Accept-Encoding": "identity", ...options.headers, ...(range === null ? {} : { Range: range }) };
    try {
      return await fetching(address, { method, headers, ...shared });
    } catch (cause) {
      throw new StorageError(`${address} could not be reached`, { cause });
    }
  };
  const first = await request("GET", `bytes=0-${HEAD_GUESS_BYTES - 1}`);
  const range = /\/(\d+)\s*$/.exec(first.headers.get("content-range") ?? "");
  // An empty file has no ranges.
  const head = first.status === 416 && range?.[1] === "0" ? new Uint8Array(0) : await body(first, address);
  // Servers of other origins may hide the header with the size.
  const size = Number(range?.[1] ?? (await request("HEAD", null)).headers.get("content-length") ?? NaN);
  if (!Number.isSafeInteger(size)) {
    throw new StorageError(`${address}: the server does not state the size of the file`, {
      hint: "A server of another origin must expose the header Content-Range.",
    });
  }
  const tag = first.headers.get("etag");
  return {
    size,
    readRange: async (start, end) => {
      if (end <= head.length) {
        return head.slice(start, end);
      }
      if (start === end) {
        return new Uint8Array(0);
      }
      const response = await request("GET", `bytes=${start}-${end - 1}`);
      const data = await body(response, address);
      if (tag !== null && (response.headers.get("etag") ?? tag) !== tag) {
        throw new StorageError(`${address} changed while it was read`, { hint: "Open it again." });
      }
      return data;
    },
  };
}

async function body(response: ResponseLike, address: string): Promise<Uint8Array> {
  const { status } = response;
  if (status !== 206) {
    // Cancel an unused body, so that the connection can serve the next request.
    await response.body?.cancel().catch(() => undefined);
  }
  if (status === 404 || status === 410) {
    throw new ObjectNotFoundError(`${address} does not exist`);
  }
  if (status === 401 || status === 403) {
    throw new AccessDeniedError(`${address} answers with ${status}`);
  }
  if (status === 200) {
    throw new UnsupportedError(`${address} does not support range requests`, {
      hint: "Fetch the whole file and pass the ArrayBuffer.",
    });
  }
  if (status !== 206) {
    throw new StorageError(`${address} answers with ${status}`);
  }
  try {
    return new Uint8Array(await response.arrayBuffer());
  } catch (cause) {
    throw new StorageError(`${address}: the response ended early`, { cause });
  }
}
