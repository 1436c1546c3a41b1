/** The browser's counterpart of Node's files and hashes: a hash in WebAssembly, and errors for files. */

import { createSHA256 } from "hash-wasm";

import { StorageError, UnsupportedError, type WShardError } from "./errors.js";
import type { JournalFile, OpenFile, Sha256, StagedFile, StageOptions } from "./platform.js";

export const hasFiles: boolean = false;

/** Not `crypto.subtle`, which takes all bytes at once and does not exist on pages served by plain HTTP. */
export async function newSha256(): Promise<Sha256> {
  const hasher = (await createSHA256()).init();
  return { update: (data) => void hasher.update(data), hex: () => hasher.digest("hex") };
}

export async function openForReading(path: string | URL): Promise<OpenFile> {
  throw new UnsupportedError(`${String(path)} cannot be opened: there are no files here`, {
    hint: "Pass a Blob, an ArrayBuffer or an HTTP address.",
  });
}

export async function stageFile(path: string | URL, _options?: StageOptions): Promise<StagedFile> {
  throw new UnsupportedError(`${String(path)} cannot be written: there are no files here`, {
    hint: "Use encodeWShard, which returns the bytes.",
  });
}

/** Returns the address of a file beside another. */
export function sibling(where: string | URL, name: string): URL {
  return new URL(encodeURIComponent(name), new URL(where, globalThis.location?.href));
}

const noRecording = (path: string): never => {
  throw new UnsupportedError(`${path} cannot be recorded or recovered: there are no files here`, {
    hint: "Use encodeWShard for a whole episode, and loadWShard to read a journal.",
  });
};

export function pathOf(path: string | URL): string {
  return noRecording(String(path));
}

export function claimJournal(path: string, _isCreated: boolean): JournalFile | null {
  return noRecording(path);
}

export function fileExists(path: string): boolean {
  return noRecording(path);
}

export function removeFile(path: string): void {
  noRecording(path);
}

export function syncDirectoryOf(path: string): void {
  noRecording(path);
}

export function translate(error: unknown, path: string): WShardError {
  return new StorageError(`${path}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
}
