/**
 * Conversion between elements and plain numbers. The only module that interprets the bits of f16 and bf16.
 */

import { decodeArray, dtypeBytes, product, type DType, type NdArray } from "./dtypes.js";
import { BadInputError } from "./errors.js";

const word = new DataView(new ArrayBuffer(4));

/** Converts every element to a number: exact, except for 64-bit integers beyond 2⁵³, which are rounded. */
export function toNumbers(array: NdArray): Float64Array {
  switch (array.dtype) {
    case "f16":
      return Float64Array.from(array.data, readHalf);
    case "bf16":
      return Float64Array.from(array.data, readBfloat);
    case "i64":
    case "u64":
      return Float64Array.from(array.data as ArrayLike<bigint>, Number);
    default:
      return Float64Array.from(array.data);
  }
}

/**
 * Converts plain numbers to an array of this type. Floats are rounded to the nearest, ties to even. `BadInputError` for a
 * number that an integer type cannot hold.
 */
export function fromNumbers<D extends DType>(
  dtype: D,
  shape: readonly number[],
  values: ArrayLike<number>,
): NdArray<D> {
  const count = product(shape);
  if (count !== values.length) {
    throw new BadInputError(`${values.length} numbers do not fill the shape [${shape.join(", ")}]`);
  }
  const array = decodeArray(new Uint8Array(count * dtypeBytes(dtype)), dtype, shape);
  for (let at = 0; at < count; at++) {
    put(array, at, values[at]!);
  }
  return array as NdArray<D>;
}

function put(array: NdArray, at: number, value: number): void {
  switch (array.dtype) {
    case "f32":
    case "f64":
      array.data[at] = value;
      return;
    case "f16":
      array.data[at] = halfBits(value);
      return;
    case "bf16":
      array.data[at] = bfloatBits(value);
      return;
    case "bool":
      array.data[at] = value === 0 ? 0 : 1;
      return;
    case "i64":
    case "u64":
      if (Number.isInteger(value)) {
        array.data[at] = BigInt(value);
      }
      break;
    default:
      array.data[at] = value;
  }
  if (Number(array.data[at]) !== value) {
    throw new BadInputError(`${value} is not an ${array.dtype}`);
  }
}

function readHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) {
    return fraction === 0 ? sign * Infinity : NaN;
  }
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
}

function readBfloat(bits: number): number {
  word.setUint32(0, bits << 16);
  return word.getFloat32(0);
}

function halfBits(value: number): number {
  if (Number.isNaN(value)) {
    return 0x7e00;
  }
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  // The distance between neighbours is 2⁻²⁴ below 2⁻¹⁴, and grows with the exponent above.
  const exponent = size < 2 ** -14 ? -14 : size === Infinity ? 16 : exponentOf(size);
  if (exponent > 15) {
    return sign | 0x7c00;
  }
  const steps = roundToEven(size / 2 ** (exponent - 10));
  // Rounding up may carry into the exponent, and past the largest value to infinity; adding to the bits gives both.
  return sign | (steps + (exponent + 14) * 1024);
}

function exponentOf(size: number): number {
  const wide = new DataView(new ArrayBuffer(8));
  wide.setFloat64(0, size);
  return ((wide.getUint16(0) >> 4) & 0x7ff) - 1023;
}

/** Rounds the number itself, not its f32: rounding twice can give another result. */
function bfloatBits(value: number): number {
  if (Number.isNaN(value)) {
    return 0x7fc0;
  }
  word.setFloat32(0, value);
  const near = word.getUint32(0);
  const low = near & 0xffff;
  if (low !== 0x8000) {
    return ((near + 0x7fff + ((near >>> 16) & 1)) >>> 16) & 0xffff;
  }
  // The f32 is a tie, so the number itself decides the direction.
  const size = Math.abs(value);
  const tie = Math.abs(word.getFloat32(0));
  const up = size > tie || (size === tie && ((near >>> 16) & 1) === 1);
  return ((near >>> 16) + (up ? 1 : 0)) & 0xffff;
}

function roundToEven(value: number): number {
  const low = Math.floor(value);
  const over = value - low;
  return over > 0.5 || (over === 0.5 && low % 2 === 1) ? low + 1 : low;
}
