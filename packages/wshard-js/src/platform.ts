/**
 * The functions that differ between Node and browsers. `#platform` is `platform-node.ts` or `platform-web.ts`, selected
 * by the conditions in package.json, so that a bundle for browsers contains no module of Node.
 */

export interface Sha256 {
  update(data: Uint8Array): void;
  hex(): string;
}

/** The members of Node's `FileHandle` that reading needs. */
export interface FileHandleLike {
  read(buffer: Uint8Array, offset: number, length: number, position: number): Promise<{ readonly bytesRead: number }>;
  stat(): Promise<{ readonly size: number }>;
  close(): Promise<void>;
}

/** A file that this library opened. */
export interface OpenFile extends FileHandleLike {
  /** Reads at once, and blocks. Returns the number of bytes. */
  readNow(out: Uint8Array, start: number, position: number): number;
}

/** A file that is being written, invisible until `commit`. */
export interface StagedFile {
  write(position: number, data: Uint8Array): Promise<void>;
  commit(totalBytes: number): Promise<void>;
  abandon(): Promise<void>;
}

/** Options of `stageFile`. */
export interface StageOptions {
  /** The path of the temporary file; the default is a new name beside the target. */
  readonly temporary?: string;
  /** False: the file is not forced to the disk. */
  readonly isDurable?: boolean;
}

/**
 * The journal of a recording, owned by this object until `close` or the end of the process. Its calls block, so that
 * bytes are with the operating system when they return.
 */
export interface JournalFile {
  readonly path: string;
  sizeBytes(): number;
  /** Returns the bytes of a range; fewer at the end of the file. */
  read(start: number, end: number): Uint8Array;
  append(data: Uint8Array): void;
  truncate(sizeBytes: number): void;
  /** Forces the bytes and the size to the disk. */
  sync(): void;
  /** Returns whether the path still names this file. A lock on a file without a name protects nothing. */
  isNamed(): boolean;
  /** Returns the path of the temporary file from which `target` is assembled, derived from this journal. */
  savingPath(target: string): string;
  close(): void;
}
