/** Node's files and hashes. The only module that imports anything of Node. */

import { createHash } from "node:crypto";
import { open, rename, unlink, type FileHandle } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { AccessDeniedError, ObjectNotFoundError, StorageError, type WShardError } from "./errors.js";
import type { FileHandleLike, Sha256, StagedFile } from "./platform.js";

export const hasFiles: boolean = true;

let staged = 0;

export async function newSha256(): Promise<Sha256> {
  const hash = createHash("sha256");
  return { update: (data) => void hash.update(data), hex: () => hash.digest("hex") };
}

export async function openForReading(path: string | URL): Promise<FileHandleLike> {
  try {
    return await open(path, "r");
  } catch (error) {
    throw translate(error, String(path));
  }
}

/** A temporary file beside `path`, renamed into place by `commit` and removed by `abandon`. */
export async function stageFile(path: string | URL): Promise<StagedFile> {
  const target = path instanceof URL ? fileURLToPath(path) : path;
  const beside = join(dirname(target), `.${basename(target)}.${process.pid}-${staged++}.saving`);
  let file: FileHandle;
  try {
    file = await open(beside, "wx+");
  } catch (error) {
    throw translate(error, target);
  }
  const translated = async (work: () => Promise<void>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      throw translate(error, target);
    }
  };
  return {
    write: (position, data) => translated(() => writeAll(file, position, data)),
    commit: (totalBytes) =>
      translated(async () => {
        await file.truncate(totalBytes);
        await file.sync();
        await file.close();
        await rename(beside, target);
        await syncFolder(dirname(target));
      }),
    abandon: async () => {
      // Report the original failure instead.
      await file.close().catch(() => undefined);
      await unlink(beside).catch(() => undefined);
    },
  };
}

async function writeAll(file: FileHandle, position: number, data: Uint8Array): Promise<void> {
  let done = 0;
  while (done < data.length) {
    done += (await file.write(data, done, data.length - done, position + done)).bytesWritten;
  }
}

async function syncFolder(folder: string): Promise<void> {
  // Windows cannot open directories, and needs no such sync.
  if (process.platform !== "win32") {
    const handle = await open(folder, "r");
    await handle.sync().finally(() => handle.close());
  }
}

/** Returns the typed error for a system error. */
export function translate(error: unknown, path: string): WShardError {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "ENOENT" || code === "ENOTDIR") {
    return new ObjectNotFoundError(`${path} does not exist`, { cause: error });
  }
  if (code === "EACCES" || code === "EPERM") {
    return new AccessDeniedError(`permission denied for ${path}`, { cause: error });
  }
  return new StorageError(`${path}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
}
