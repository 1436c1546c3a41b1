/** Residuals: the sign of the second difference, one bit for each step. Implements "Residuals" of the specification. */

import type { NdArray } from "./dtypes.js";
import { BadInputError, CorruptError } from "./errors.js";
import { toNumbers } from "./numbers.js";

/**
 * Packs the bits of a signal of [T] or [T, D]: ceil(T/8) bytes for each dimension, one after another.
 *
 * A bit is 1 exactly if 2·x[i] > x[i−1] + x[i+1], computed in float64. The first and the last step are 0.
 */
export function packResidual(signal: NdArray): Uint8Array {
  const [length, width = 1] = signal.shape;
  if (length === undefined || signal.shape.length > 2) {
    throw new BadInputError(`a residual needs a signal of [T] or [T, D], not of [${signal.shape.join(", ")}]`);
  }
  const values = toNumbers(signal);
  const rowBytes = Math.ceil(length / 8);
  const out = new Uint8Array(rowBytes * width);
  for (let row = 0; row < width; row++) {
    for (let step = 1; step < length - 1; step++) {
      const at = step * width + row;
      if (2 * values[at]! - values[at - width]! - values[at + width]! > 0) {
        out[row * rowBytes + (step >> 3)]! |= 1 << (step & 7);
      }
    }
  }
  return out;
}

/**
 * Returns the bits as booleans of [D, T]. The number of bytes determines D; some writers pack the first dimension only.
 * Without steps, D is 0.
 */
export function unpackResidual(packed: Uint8Array, length: number): NdArray<"bool"> {
  const rowBytes = Math.ceil(length / 8);
  if (length === 0 && packed.length === 0) {
    return { dtype: "bool", shape: [0, 0], data: new Uint8Array(0) };
  }
  if (!(rowBytes > 0) || packed.length % rowBytes !== 0) {
    throw new CorruptError(
      `${packed.length} bytes are not residuals of ${length} steps, ${rowBytes} bytes each`,
    );
  }
  const width = packed.length / rowBytes;
  const data = new Uint8Array(width * length);
  for (let row = 0; row < width; row++) {
    for (let step = 0; step < length; step++) {
      data[row * length + step] = (packed[row * rowBytes + (step >> 3)]! >> (step & 7)) & 1;
    }
  }
  return { dtype: "bool", shape: [width, length], data };
}
