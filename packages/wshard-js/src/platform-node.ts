/** Node's files and hashes. Only this module and `platform-journal.ts` import anything of Node. */

import { createHash } from "node:crypto";
import { readSync } from "node:fs";
import { open, rename, unlink, type FileHandle } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

import { explain, pathOf, syncDirectoryOf } from "./platform-journal.js";
import type { OpenFile, Sha256, StagedFile, StageOptions } from "./platform.js";

export {
  claimJournal,
  explain as translate,
  fileExists,
  pathOf,
  removeFile,
  syncDirectoryOf,
} from "./platform-journal.js";

export const hasFiles: boolean = true;

let staged = 0;

export async function newSha256(): Promise<Sha256> {
  const hash = createHash("sha256");
  return { update: (data) => void hash.update(data), hex: () => hash.digest("hex") };
}

export async function openForReading(path: string | URL): Promise<OpenFile> {
  try {
    const file = await open(path, "r");
    return {
      read: (out, offset, length, position) => file.read(out, offset, length, position),
      readNow: (out, start, position) => readSync(file.fd, out, start, out.length - start, position),
      stat: () => file.stat(),
      close: () => file.close(),
    };
  } catch (error) {
    throw explain(error, String(path));
  }
}

/** Returns the path or the address of a file beside another. */
export function sibling(where: string | URL, name: string): string | URL {
  if (/^https?:/i.test(String(where))) {
    return new URL(encodeURIComponent(name), where);
  }
  return join(dirname(pathOf(where)), name);
}

/** A temporary file beside `path`, renamed into place by `commit` and removed by `abandon`. */
export async function stageFile(path: string | URL, options: StageOptions = {}): Promise<StagedFile> {
  const target = pathOf(path);
  const { isDurable = true } = options;
  const beside = options.temporary ?? join(dirname(target), `.${basename(target)}.${process.pid}-${staged++}.saving`);
  let file: FileHandle;
  try {
    file = await open(beside, "wx+");
  } catch (error) {
    throw explain(error, target);
  }
  const translated = async (work: () => Promise<void>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      throw explain(error, target);
    }
  };
  return {
    write: (position, data) => translated(() => writeAll(file, position, data)),
    commit: (totalBytes) =>
      translated(async () => {
        await file.truncate(totalBytes);
        if (isDurable) {
          await file.sync();
        }
        await file.close();
        await rename(beside, target);
        if (isDurable) {
          syncDirectoryOf(target);
        }
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
