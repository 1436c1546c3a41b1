/**
 * The container: header, index and names. Bytes in, values out; no files here.
 *
 * Every offset, size and count in a file is checked against the file before use. Implements "Container" of the
 * specification.
 */

import { decodeText, encodeText, readU64, viewOf, writeU64 } from "./bytes.js";
import { checkExpansion, CODECS, type Codec } from "./codecs.js";
import { xxh64 } from "./digests.js";
import { CorruptError, LimitExceededError, UnsupportedError } from "./errors.js";
import { MAX_ENTRIES, MAX_GAP_BYTES, MAX_NAMES_BYTES } from "./limits.js";

export const HEADER_BYTES = 64;
export const ENTRY_BYTES = 48;
export const ROLE_MANIFEST = 4;
export const ROLE_EPISODE = 5;
export const JSON_CONTENT = 2;
export const ALIGNMENTS: readonly number[] = [0, 16, 32, 64];
/** Little-endian, with checksums and content types. */
export const WRITTEN_FLAGS = 0x00a2;

const MAGIC = "SHRD";
const VERSION = 2;
const BIG_ENDIAN = 0x0004;
const HAS_CHECKSUMS = 0x0020;
const [COMPRESSED, ZSTD, LZ4, CHUNKED] = [1, 2, 4, 8] as const;

/** The first 64 bytes. */
export interface Header {
  readonly role: number;
  readonly flags: number;
  readonly alignment: number;
  readonly defaultCodec: Codec;
  readonly entryCount: number;
  readonly namesOffset: number;
  readonly dataOffset: number;
  readonly schemaOffset: number;
  readonly totalBytes: number;
}

/** The index entry of one block. `offset` counts from the start of the file. */
export interface BlockEntry {
  readonly name: string;
  readonly codec: Codec;
  readonly isChunked: boolean;
  readonly offset: number;
  readonly storedBytes: number;
  readonly sizeBytes: number;
  readonly checksum: number;
  readonly contentType: number;
  readonly tags: number;
}

export function hasChecksums(header: Header): boolean {
  return (header.flags & HAS_CHECKSUMS) !== 0;
}

function indexEnd(header: Header): number {
  return HEADER_BYTES + ENTRY_BYTES * header.entryCount;
}

/** Parses the header, and checks it against the size of the file. */
export function parseHeader(data: Uint8Array, fileBytes: number): Header {
  if (data.length < HEADER_BYTES) {
    throw new CorruptError(`the file has ${fileBytes} bytes; its header alone takes ${HEADER_BYTES}`);
  }
  const view = viewOf(data);
  const magic = String.fromCharCode(...data.subarray(0, 4));
  if (magic !== MAGIC) {
    throw new CorruptError(`the file begins with ${JSON.stringify(magic)}, not with "${MAGIC}"`);
  }
  const [version, flags, entryBytes] = [view.getUint8(4), view.getUint16(6, true), view.getUint16(10, true)];
  if (version !== VERSION) {
    throw new UnsupportedError(`the container has version ${version}; this library reads version ${VERSION}`);
  }
  if (flags & BIG_ENDIAN) {
    throw new UnsupportedError("the file is big-endian; this library reads little-endian files");
  }
  if (entryBytes !== ENTRY_BYTES) {
    throw new UnsupportedError(`index entries have ${entryBytes} bytes; this library reads ${ENTRY_BYTES}`);
  }
  const [alignment, codec] = [view.getUint8(8), view.getUint8(9)];
  const defaultCodec = CODECS[codec];
  if (!ALIGNMENTS.includes(alignment) || defaultCodec === undefined) {
    throw new CorruptError(`alignment ${alignment} or compression ${codec} does not exist in the format`);
  }
  const header: Header = {
    role: view.getUint8(5),
    flags,
    alignment,
    defaultCodec,
    entryCount: view.getUint32(12, true),
    namesOffset: readU64(view, 16),
    dataOffset: readU64(view, 24),
    schemaOffset: readU64(view, 32),
    totalBytes: readU64(view, 40),
  };
  checkSections(header, fileBytes);
  return header;
}

function checkSections(header: Header, fileBytes: number): void {
  const { namesOffset: names, dataOffset: blocks, schemaOffset: schema, totalBytes: total } = header;
  if (total !== fileBytes) {
    throw new CorruptError(`the header promises ${total} bytes, the file has ${fileBytes}`);
  }
  if (header.entryCount > MAX_ENTRIES) {
    throw new LimitExceededError(`the index has ${header.entryCount} entries; the most is ${MAX_ENTRIES}`);
  }
  const end = indexEnd(header);
  if (!(end <= names && names <= blocks && blocks <= total) || schema > total) {
    throw new CorruptError(
      `index end ${end}, names ${names}, data ${blocks}, schema ${schema} do not fit in ${total} bytes`,
    );
  }
  if (names - end > MAX_GAP_BYTES) {
    throw new CorruptError(`there are ${names - end} bytes between the index and the names`);
  }
  if (blocks - names > MAX_NAMES_BYTES) {
    throw new LimitExceededError(`the names take ${blocks - names} bytes; the most is ${MAX_NAMES_BYTES}`);
  }
}

/** Parses the entries by name, in the order of the index. `data` is the file up to its data section. */
export function parseIndex(header: Header, data: Uint8Array): ReadonlyMap<string, BlockEntry> {
  const names = data.subarray(header.namesOffset, header.dataOffset);
  if (data.subarray(indexEnd(header), header.namesOffset).some((byte) => byte !== 0)) {
    throw new CorruptError("the gap between the index and the names is not zero");
  }
  // Names may share bytes, so a small file could hold very many long names.
  let nameBytes = 0;
  const view = viewOf(data);
  for (let number = 0; number < header.entryCount; number++) {
    nameBytes += view.getUint16(HEADER_BYTES + ENTRY_BYTES * number + 12, true);
  }
  if (nameBytes > MAX_NAMES_BYTES) {
    throw new LimitExceededError(`the names of all blocks take ${nameBytes} bytes; the most is ${MAX_NAMES_BYTES}`);
  }
  const entries = new Map<string, BlockEntry>();
  let repeated: string | null = null;
  for (let number = 0; number < header.entryCount; number++) {
    const at = HEADER_BYTES + ENTRY_BYTES * number;
    const entry = parseEntry(viewOf(data.subarray(at, at + ENTRY_BYTES)), header, names);
    repeated ??= entries.has(entry.name) ? entry.name : null;
    entries.set(entry.name, entry);
  }
  // After all entries, so that every library reports the same one of several faults.
  if (repeated !== null) {
    throw new CorruptError(`two blocks have the same name, ${JSON.stringify(repeated)}`);
  }
  checkOverlap([...entries.values()]);
  return entries;
}

function parseEntry(row: DataView, header: Header, names: Uint8Array): BlockEntry {
  const name = parseName(row, names);
  const what = `block '${name}'`;
  const flags = row.getUint16(14, true);
  const codec = parseCodec(flags, header, what);
  const [offset, storedBytes, sizeBytes] = [readU64(row, 16), readU64(row, 24), readU64(row, 32)];
  if (offset < header.dataOffset || offset + storedBytes > header.totalBytes) {
    throw new CorruptError(`${what} at ${offset}+${storedBytes} is outside the data section`);
  }
  if (header.alignment !== 0 && offset % header.alignment !== 0) {
    throw new CorruptError(`${what} at ${offset} is not aligned to ${header.alignment}`);
  }
  const isChunked = (flags & CHUNKED) !== 0;
  if (codec === "none") {
    if (storedBytes !== sizeBytes) {
      throw new CorruptError(`${what} is not compressed, but stores ${sizeBytes} bytes in ${storedBytes}`);
    }
  } else if (!isChunked) {
    checkExpansion(codec, storedBytes, sizeBytes, what);
  }
  const [checksum, contentType, tags] = [row.getUint32(40, true), row.getUint16(44, true), row.getUint16(46, true)];
  return { name, codec, isChunked, offset, storedBytes, sizeBytes, checksum, contentType, tags };
}

function parseName(row: DataView, names: Uint8Array): string {
  const [at, size] = [row.getUint32(8, true), row.getUint16(12, true)];
  if (size === 0 || at + size > names.length) {
    throw new CorruptError(`a name at ${at}+${size} is outside the ${names.length} bytes of names`);
  }
  const raw = names.subarray(at, at + size);
  if (xxh64(raw) !== row.getBigUint64(0, true)) {
    throw new CorruptError(`the name at ${at}+${size} does not match the hash of its entry`);
  }
  try {
    return decodeText(raw);
  } catch (cause) {
    throw new CorruptError(`the name at ${at}+${size} is not UTF-8`, { cause });
  }
}

function parseCodec(flags: number, header: Header, what: string): Codec {
  const shown = `0x${flags.toString(16).padStart(4, "0")}`;
  if (flags & ~(COMPRESSED | ZSTD | LZ4 | CHUNKED)) {
    throw new UnsupportedError(`${what} has the unknown flags ${shown}`);
  }
  if (!(flags & COMPRESSED)) {
    if (flags) {
      throw new CorruptError(`${what} has the flags ${shown}: a codec, but not compressed`);
    }
    return "none";
  }
  if (flags & ZSTD && flags & LZ4) {
    throw new CorruptError(`${what} has the flags of both zstd and lz4`);
  }
  const codec = flags & ZSTD ? "zstd" : flags & LZ4 ? "lz4" : header.defaultCodec;
  if (codec === "none") {
    throw new CorruptError(`${what} is compressed, but nothing says how: neither its flags nor the header name a codec`);
  }
  if (flags & CHUNKED && codec !== "zstd") {
    throw new UnsupportedError(`${what} has time chunks in ${codec}; only zstd supports them`);
  }
  return codec;
}

function checkOverlap(entries: BlockEntry[]): void {
  const endOf = (entry: BlockEntry): number => entry.offset + entry.storedBytes;
  entries.sort((left, right) => left.offset - right.offset || endOf(left) - endOf(right));
  let end = 0;
  let before = "";
  for (const entry of entries) {
    if (entry.offset < end) {
      throw new CorruptError(`blocks '${before}' and '${entry.name}' overlap at byte ${entry.offset}`);
    }
    end = endOf(entry);
    before = entry.name;
  }
}

export function encodeHeader(header: Header): Uint8Array {
  const out = new Uint8Array(HEADER_BYTES);
  const view = viewOf(out);
  out.set(encodeText(MAGIC));
  view.setUint8(4, VERSION);
  view.setUint8(5, header.role);
  view.setUint16(6, header.flags, true);
  view.setUint8(8, header.alignment);
  view.setUint8(9, CODECS.indexOf(header.defaultCodec));
  view.setUint16(10, ENTRY_BYTES, true);
  view.setUint32(12, header.entryCount, true);
  writeU64(view, 16, header.namesOffset);
  writeU64(view, 24, header.dataOffset);
  writeU64(view, 32, header.schemaOffset);
  writeU64(view, 40, header.totalBytes);
  return out;
}

export function encodeEntry(entry: BlockEntry, nameOffset: number): Uint8Array {
  const out = new Uint8Array(ENTRY_BYTES);
  const view = viewOf(out);
  const raw = encodeText(entry.name);
  const named = { none: 0, zstd: COMPRESSED | ZSTD, lz4: COMPRESSED | LZ4 }[entry.codec];
  view.setBigUint64(0, xxh64(raw), true);
  view.setUint32(8, nameOffset, true);
  view.setUint16(12, raw.length, true);
  view.setUint16(14, named | (entry.isChunked ? CHUNKED : 0), true);
  writeU64(view, 16, entry.offset);
  writeU64(view, 24, entry.storedBytes);
  writeU64(view, 32, entry.sizeBytes);
  view.setUint32(40, entry.checksum, true);
  view.setUint16(44, entry.contentType, true);
  view.setUint16(46, entry.tags, true);
  return out;
}
