/**
 * One zstd frame. Its header and blocks are parsed here, so that a frame with a false size, a dictionary or trailing
 * bytes never reaches the decoder.
 *
 * Decoder and encoder are two packages, each loaded on first use: reading needs the small one only.
 */

import type { ZSTDDecoder } from "zstddec";

import { readU64, viewOf } from "./bytes.js";
import { CorruptError, LimitExceededError, UnsupportedError } from "./errors.js";
import { MAX_ZSTD_HEAP_BYTES } from "./limits.js";

const MAGIC = 0xfd2fb528;
const RAW = 0;
const RLE = 1;
const RESERVED = 3;

type Encoder = Pick<typeof import("@bokuweb/zstd-wasm"), "compress">;

let decoder: Promise<ZSTDDecoder> | undefined;
let encoder: Promise<Encoder> | undefined;

/** Returns exactly `size` bytes, or throws `CorruptError`. The caller has bounded `size`. */
export async function decompressZstd(data: Uint8Array, size: number, what: string): Promise<Uint8Array> {
  const isEmpty = checkFrame(data, size, what);
  if (size === 0) {
    if (!isEmpty) {
      throw new CorruptError(`${what} is not one zstd frame: it is not empty`);
    }
    return new Uint8Array(0);
  }
  if (data.length + size > MAX_ZSTD_HEAP_BYTES) {
    throw new LimitExceededError(`${what} takes ${data.length} bytes and ${size} decoded, which exceeds the memory of the decoder`);
  }
  decoder ??= loadDecoder();
  const out = (await decoder).decode(data, size);
  // The decoder returns nothing for a corrupt frame.
  if (out.length !== size) {
    const why = out.length === 0 ? "it is corrupt" : `it decodes to ${out.length} bytes instead of ${size}`;
    throw new CorruptError(`${what} is not one zstd frame: ${why}`);
  }
  return out;
}

/** Compresses to one frame with its content size and no checksum. The output depends on input and level only. */
export async function compressZstd(data: Uint8Array, level: number): Promise<Uint8Array> {
  encoder ??= loadEncoder();
  const out = (await encoder).compress(data, level);
  try {
    checkFrame(out, data.length, "the compressed block");
  } catch (cause) {
    throw new UnsupportedError(`${data.length} bytes could not be compressed`, { cause });
  }
  return out;
}

/**
 * Checks that a frame fills the bytes exactly and promises `size` bytes, if anything. Returns true if all its blocks are
 * empty. The size is checked before the dictionary, as in the other libraries.
 */
function checkFrame(data: Uint8Array, size: number, what: string): boolean {
  const refuse = (why: string): never => {
    throw new CorruptError(`${what} is not one zstd frame: ${why}`);
  };
  const view = viewOf(data);
  if (data.length < 6 || view.getUint32(0, true) !== MAGIC) {
    refuse("it does not begin as one");
  }
  const descriptor = view.getUint8(4);
  const isSingle = (descriptor & 0x20) !== 0;
  const dictionaryBytes = [0, 1, 2, 4][descriptor & 3]!;
  const sizeBytes = [isSingle ? 1 : 0, 2, 4, 8][descriptor >> 6]!;
  const dictionaryAt = isSingle ? 5 : 6;
  const sizeAt = dictionaryAt + dictionaryBytes;
  let at = sizeAt + sizeBytes;
  if (descriptor & 0x08 || at > data.length) {
    refuse("its header is corrupt");
  }
  const contentBytes = sizeBytes === 0 ? size : readContentSize(view, sizeAt, sizeBytes);
  if (contentBytes !== size) {
    throw new CorruptError(`${what}: its zstd frame promises ${contentBytes} bytes, its entry ${size}`);
  }
  if (data.subarray(dictionaryAt, sizeAt).some((byte) => byte !== 0)) {
    throw new UnsupportedError(`${what} needs a zstd dictionary, and episode files have none`);
  }
  let isEmpty = true;
  for (let isLast = false; !isLast;) {
    if (at + 3 > data.length) {
      refuse("it is cut short");
    }
    const head = view.getUint16(at, true) | (view.getUint8(at + 2) << 16);
    const kind = (head >> 1) & 3;
    const blockBytes = head >> 3;
    if (kind === RESERVED) {
      refuse("a block has an unknown type");
    }
    isLast = (head & 1) === 1;
    isEmpty &&= blockBytes === 0 && (kind === RAW || kind === RLE);
    at += 3 + (kind === RLE ? 1 : blockBytes);
  }
  at += descriptor & 0x04 ? 4 : 0;
  if (at !== data.length) {
    refuse(at > data.length ? "it is cut short" : `${data.length - at} bytes follow it`);
  }
  return isEmpty;
}

function readContentSize(view: DataView, at: number, width: number): number {
  switch (width) {
    case 1:
      return view.getUint8(at);
    case 2:
      return view.getUint16(at, true) + 256;
    case 4:
      return view.getUint32(at, true);
    default:
      return readU64(view, at);
  }
}

async function loadDecoder(): Promise<ZSTDDecoder> {
  try {
    const library = await import("zstddec");
    const made = new library.ZSTDDecoder();
    await made.init();
    return made;
  } catch (cause) {
    decoder = undefined;
    throw new UnsupportedError("the zstd decoder could not be loaded", { cause });
  }
}

async function loadEncoder(): Promise<Encoder> {
  try {
    const library = await import("@bokuweb/zstd-wasm");
    await library.init();
    return library;
  } catch (cause) {
    encoder = undefined;
    throw new UnsupportedError("the zstd encoder could not be loaded", { cause });
  }
}
