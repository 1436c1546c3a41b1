/** The browser's counterpart of Node's files and hashes: a hash in WebAssembly, and errors for files. */

import { createSHA256 } from "hash-wasm";

import { StorageError, UnsupportedError, type WShardError } from "./errors.js";
import type { FileHandleLike, Sha256, StagedFile } from "./platform.js";

export const hasFiles: boolean = false;

/** Not `crypto.subtle`, which takes all bytes at once and does not exist on pages served by plain HTTP. */
export async function newSha256(): Promise<Sha256> {
  const hasher = (await createSHA256()).init();
  return { update: (data) => void hasher.update(data), hex: () => hasher.digest("hex") };
}

export async function openForReading(path: string | URL): Promise<FileHandleLike> {
  throw new UnsupportedError(`${String(path)} cannot be opened: there are no files here`, {
    hint: "Pass a Blob, an ArrayBuffer or an HTTP address.",
  });
}

export async function stageFile(path: string | URL): Promise<StagedFile> {
  throw new UnsupportedError(`${String(path)} cannot be written: there are no files here`, {
    hint: "Use encodeWShard, which returns the bytes.",
  });
}

export function translate(error: unknown, path: string): WShardError {
  return new StorageError(`${path}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
}
