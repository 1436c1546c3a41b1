/**
 * The journal of a recording as a file of Node, with a lock of its owner.
 *
 * Node has no `flock`. The lock belongs to the open file, not to a process, so a short-lived program that inherits the
 * file can take it: `flock` of util-linux, or perl. Implements "Owner" of the specification.
 */

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import {
  AccessDeniedError,
  BadInputError,
  ObjectNotFoundError,
  StorageError,
  UnsupportedError,
  WShardError,
} from "./errors.js";
import type { JournalFile } from "./platform.js";

const CLAIM_ATTEMPTS = 10;
/** The number that a program sees for the file it locks. */
const INHERITED = "3";
const LOCKED_BY_ANOTHER = 1;
const PERL = `use Fcntl ":flock"; use Errno; open(my $file, "<&=${INHERITED}") or die "$!\n";
flock($file, LOCK_EX | LOCK_NB) and exit 0; exit 1 if $!{EWOULDBLOCK}; print STDERR "$!\n"; exit 2;`;
const LOCKERS: readonly (readonly [command: string, args: readonly string[]])[] = [
  ["flock", ["-x", "-n", INHERITED]],
  ["perl", ["-e", PERL]],
];
/** Messages of file systems without locks, on which every claim succeeds. */
const NO_LOCKS = /not (?:supported|implemented|available)|no locks|bad file/i;

export function pathOf(path: string | URL): string {
  return path instanceof URL ? fileURLToPath(path) : path;
}

/**
 * Opens a journal as its only owner, until the file is closed or the process ends. Null if another one owns it.
 * Without `isCreated` it must exist, and may be read-only.
 */
export function claimJournal(path: string, isCreated: boolean): JournalFile | null {
  for (let attempt = 0; attempt < CLAIM_ATTEMPTS; attempt++) {
    const file = new LockedFile(path, openJournal(path, isCreated));
    let isOwned = false;
    try {
      if (!lock(file.handle)) {
        return null;
      }
      // Otherwise the last owner has just removed or replaced the file.
      isOwned = file.isNamed();
    } finally {
      if (!isOwned) {
        file.close();
      }
    }
    if (isOwned) {
      return file;
    }
  }
  return null;
}

function openJournal(path: string, isCreated: boolean): number {
  try {
    return fs.openSync(path, isCreated ? "a+" : "r+");
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    if (isCreated || (code !== "EACCES" && code !== "EPERM" && code !== "EROFS")) {
      throw explain(error, path);
    }
  }
  try {
    return fs.openSync(path, "r");
  } catch (error) {
    throw explain(error, path);
  }
}

/** Takes the exclusive lock of an open file. False: another open file has it. */
function lock(handle: number): boolean {
  if (process.platform === "win32") {
    return true;
  }
  for (const [command, args] of LOCKERS) {
    const env = { ...process.env, LC_ALL: "C" };
    const child = spawnSync(command, args, { stdio: ["ignore", "ignore", "pipe", handle], encoding: "utf8", env });
    if (child.error === undefined) {
      if (child.status === 0 || (child.status !== LOCKED_BY_ANOTHER && NO_LOCKS.test(child.stderr))) {
        return true;
      }
      if (child.status === LOCKED_BY_ANOTHER) {
        return false;
      }
      throw new StorageError(`the journal could not be locked: ${child.stderr.trim()}`);
    }
  }
  throw new UnsupportedError("a recording needs a file lock, and neither flock nor perl is installed", {
    hint: "Install util-linux, which has flock.",
  });
}

class LockedFile implements JournalFile {
  private isOpen = true;

  constructor(
    readonly path: string,
    readonly handle: number,
  ) {}

  sizeBytes(): number {
    return this.translated(() => fs.fstatSync(this.handle).size);
  }

  read(start: number, end: number): Uint8Array {
    return this.translated(() => {
      const out = new Uint8Array(end - start);
      let done = 0;
      while (done < out.length) {
        const count = fs.readSync(this.handle, out, done, out.length - done, start + done);
        if (count === 0) {
          break;
        }
        done += count;
      }
      return out.subarray(0, done);
    });
  }

  append(data: Uint8Array): void {
    this.translated(() => {
      for (let done = 0; done < data.length;) {
        done += fs.writeSync(this.handle, data, done);
      }
    });
  }

  truncate(sizeBytes: number): void {
    this.translated(() => fs.ftruncateSync(this.handle, sizeBytes));
  }

  sync(): void {
    this.translated(() => fs.fdatasyncSync(this.handle));
  }

  isNamed(): boolean {
    const [named, own] = [
      fs.statSync(this.path, { bigint: true, throwIfNoEntry: false }),
      fs.fstatSync(this.handle, { bigint: true }),
    ];
    return named !== undefined && named.dev === own.dev && named.ino === own.ino;
  }

  savingPath(target: string): string {
    const { dev, ino } = this.translated(() => fs.fstatSync(this.handle, { bigint: true }));
    return join(dirname(target), `.${dev.toString(16)}-${ino.toString(16)}.saving`);
  }

  close(): void {
    if (this.isOpen) {
      this.isOpen = false;
      fs.closeSync(this.handle);
    }
  }

  private translated<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      throw explain(error, this.path);
    }
  }
}

export function fileExists(path: string): boolean {
  try {
    return fs.statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    throw explain(error, path);
  }
}

/** Removes a file if it exists. */
export function removeFile(path: string): void {
  try {
    fs.rmSync(path, { force: true });
  } catch (error) {
    throw explain(error, path);
  }
}

/** Forces the entry of a file in its directory to the disk. */
export function syncDirectoryOf(path: string): void {
  // Windows cannot open directories, and needs no such sync.
  if (process.platform !== "win32") {
    const handle = fs.openSync(dirname(path), "r");
    try {
      fs.fsyncSync(handle);
    } finally {
      fs.closeSync(handle);
    }
  }
}

/** Returns the typed error for a system error. Errors of this library pass unchanged. */
export function explain(error: unknown, path: string): WShardError {
  if (error instanceof WShardError) {
    return error;
  }
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "ENOENT" || code === "ENOTDIR") {
    return new ObjectNotFoundError(`${path} does not exist`, { cause: error });
  }
  if (code === "EACCES" || code === "EPERM") {
    return new AccessDeniedError(`permission denied for ${path}`, { cause: error });
  }
  if (code === "ENAMETOOLONG") {
    return new BadInputError(`the file name of ${path.slice(0, 80)} is too long for its file system`, { cause: error });
  }
  return new StorageError(`${path}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
}
