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

/** A file that is being written, invisible until `commit`. */
export interface StagedFile {
  write(position: number, data: Uint8Array): Promise<void>;
  commit(totalBytes: number): Promise<void>;
  abandon(): Promise<void>;
}
