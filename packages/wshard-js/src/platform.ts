/**
 * What Node can do and a browser cannot, or does otherwise. `#platform` is one of `platform-node.ts` and
 * `platform-web.ts`, chosen by the conditions in package.json, so that a bundle for browsers never sees a
 * module of Node.
 */

export interface Sha256 {
  update(data: Uint8Array): void;
  hex(): string;
}

/** The part of Node's `FileHandle` that reading needs. */
export interface FileHandleLike {
  read(buffer: Uint8Array, offset: number, length: number, position: number): Promise<{ readonly bytesRead: number }>;
  stat(): Promise<{ readonly size: number }>;
  close(): Promise<void>;
}

/** A file in the making, which nobody sees until `commit`. */
export interface StagedFile {
  write(position: number, data: Uint8Array): Promise<void>;
  commit(totalBytes: number): Promise<void>;
  abandon(): Promise<void>;
}
