/** Numbers and text in bytes: little-endian, and strict UTF-8. */

import { UnsupportedError } from "./errors.js";

const encoder = new TextEncoder();
// A byte order mark is an ordinary character, here and in the Python library.
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

if (new Uint8Array(new Uint16Array([1]).buffer)[0] !== 1) {
  throw new UnsupportedError("this machine is big-endian; arrays of episode files are little-endian");
}

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Exact up to 2⁵³. Larger values are rounded but stay larger, so that limits still reject them. */
export function readU64(view: DataView, at: number): number {
  return view.getUint32(at + 4, true) * 2 ** 32 + view.getUint32(at, true);
}

export function writeU64(view: DataView, at: number, value: number): void {
  view.setUint32(at, value % 2 ** 32, true);
  view.setUint32(at + 4, Math.floor(value / 2 ** 32), true);
}

export function encodeText(text: string): Uint8Array {
  return encoder.encode(text);
}

/** Throws a `TypeError` for bytes that are not UTF-8. */
export function decodeText(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}

/** Returns whether the text has no lone surrogate, and so can be written as UTF-8. */
export function isWellFormed(text: string): boolean {
  return !/\p{Surrogate}/u.test(text);
}

/** Compares texts by their UTF-8 bytes, which is the order of their code points. */
export function compareText(left: string, right: string): number {
  const shared = Math.min(left.length, right.length);
  for (let at = 0; at < shared; at++) {
    const [a, b] = [left.charCodeAt(at), right.charCodeAt(at)];
    if (a !== b) {
      // Surrogates encode code points above all others, although their own values are smaller.
      return isHalf(a) === isHalf(b) ? a - b : isHalf(a) ? 1 : -1;
    }
  }
  return left.length - right.length;
}

function isHalf(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdfff;
}

export function sameBytes(left: Uint8Array, right: Uint8Array): boolean {
  return left.length === right.length && left.every((byte, at) => byte === right[at]);
}

export function concat(parts: readonly Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}
