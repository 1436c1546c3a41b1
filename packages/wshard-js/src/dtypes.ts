/**
 * The 13 element types, and conversion between bytes and typed arrays.
 *
 * Decoding makes a view if the bytes are aligned, and a copy otherwise. f16 and bf16 have no array type in every
 * environment, and stay bits in a `Uint16Array`; `toNumbers` converts them. Implements "Element types" of the
 * specification.
 */

import { BadInputError, CorruptError } from "./errors.js";

/** The typed array of each element type. Booleans are bytes of 0 and 1. */
export interface ElementArrays {
  readonly f32: Float32Array;
  readonly f64: Float64Array;
  readonly f16: Uint16Array;
  readonly bf16: Uint16Array;
  readonly i64: BigInt64Array;
  readonly i32: Int32Array;
  readonly i16: Int16Array;
  readonly i8: Int8Array;
  readonly u64: BigUint64Array;
  readonly u32: Uint32Array;
  readonly u16: Uint16Array;
  readonly u8: Uint8Array;
  readonly bool: Uint8Array;
}

export type DType = keyof ElementArrays;

export type TypedArray = ElementArrays[DType];

/** An array in C order: the first axis of a channel is time. `dtype` determines the type of `data`. */
export type NdArray<D extends DType = DType> = {
  [K in D]: { readonly dtype: K; readonly shape: readonly number[]; readonly data: ElementArrays[K] };
}[D];

interface Maker {
  readonly BYTES_PER_ELEMENT: number;
  new (buffer: ArrayBufferLike, byteOffset: number, length: number): TypedArray;
  new (length: number): TypedArray;
}

const MAKERS: Readonly<Record<DType, Maker>> = {
  f32: Float32Array,
  f64: Float64Array,
  f16: Uint16Array,
  bf16: Uint16Array,
  i64: BigInt64Array,
  i32: Int32Array,
  i16: Int16Array,
  i8: Int8Array,
  u64: BigUint64Array,
  u32: Uint32Array,
  u16: Uint16Array,
  u8: Uint8Array,
  bool: Uint8Array,
};

/** The names of all element types. */
export const DTYPES: readonly DType[] = Object.keys(MAKERS) as DType[];

/** The default element type of an array type that can hold several. */
const USUAL: readonly DType[] = DTYPES.filter((dtype) => !["f16", "bf16", "bool"].includes(dtype));

export function isDType(text: string): text is DType {
  return Object.hasOwn(MAKERS, text);
}

/** Bytes of one element. */
export function dtypeBytes(dtype: DType): number {
  return MAKERS[dtype].BYTES_PER_ELEMENT;
}

export function product(shape: readonly number[]): number {
  return shape.reduce((all, size) => all * size, 1);
}

/** Returns the element type of a typed array: a `Uint16Array` is u16, a `Uint8Array` u8, unless declared otherwise. */
export function dtypeOf(data: TypedArray): DType {
  const found = USUAL.find((dtype) => data instanceof MAKERS[dtype]);
  if (found === undefined) {
    throw new BadInputError(`${Object.prototype.toString.call(data)} is not an array that an episode file can hold`);
  }
  return found;
}

/** Returns an array over the bytes. `CorruptError` if they do not fill the shape. Non-zero bytes are true. */
export function decodeArray(bytes: Uint8Array, dtype: DType, shape: readonly number[]): NdArray {
  const maker = MAKERS[dtype];
  if (product(shape) * maker.BYTES_PER_ELEMENT !== bytes.length) {
    throw new CorruptError(`${bytes.length} bytes do not fill the shape [${shape.join(", ")}] of ${dtype}`);
  }
  if (bytes.length === 0) {
    checkEmptyShape(shape, dtype);
  }
  const isOdd = dtype === "bool" && bytes.some((byte) => byte > 1);
  const lying = isOdd
    ? bytes.map((byte) => (byte === 0 ? 0 : 1))
    : bytes.byteOffset % maker.BYTES_PER_ELEMENT === 0
      ? bytes
      : new Uint8Array(bytes);
  const data = new maker(lying.buffer, lying.byteOffset, lying.length / maker.BYTES_PER_ELEMENT);
  return { dtype, shape, data } as NdArray;
}

/** Throws `CorruptError` for an array without elements whose other dimensions exceed 63 bits. */
export function checkEmptyShape(shape: readonly number[], dtype: DType): void {
  const rest = shape.filter((size) => size !== 0).reduce((all, size) => all * BigInt(size), BigInt(dtypeBytes(dtype)));
  if (rest >= 2n ** 63n) {
    throw new CorruptError(`the shape [${shape.join(", ")}] of ${dtype} is impossible`);
  }
}

/** Returns rows of an array, as a view of it. `width` is the number of elements of a row. */
export function viewRows({ dtype, shape, data }: NdArray, start: number, stop: number, width: number): NdArray {
  const rows = shape.slice();
  rows[0] = stop - start;
  return { dtype, shape: rows, data: data.subarray(start * width, stop * width) } as NdArray;
}

/** Returns an array of zeros. */
export function emptyArray(dtype: DType, shape: readonly number[]): NdArray {
  return { dtype, shape, data: new MAKERS[dtype](product(shape)) } as NdArray;
}

/** Concatenates arrays of one type along their first axis. A single array is returned as it is. */
export function joinArrays(arrays: readonly NdArray[]): NdArray {
  const first = arrays[0]!;
  if (arrays.length === 1) {
    return first;
  }
  const rows = arrays.reduce((sum, { shape }) => sum + shape[0]!, 0);
  const out = emptyArray(first.dtype, [rows, ...first.shape.slice(1)]);
  let at = 0;
  for (const { data } of arrays) {
    (out.data as { set(data: ArrayLike<number | bigint>, at: number): void }).set(data, at);
    at += data.length;
  }
  return out;
}

/** Returns the stored bytes of an array; a view. `BadInputError` unless data, type and shape agree. */
export function encodeArray(array: NdArray, what: string): Uint8Array {
  const { dtype, data, shape } = array;
  if (!isDType(dtype)) {
    throw new BadInputError(`${what} has the dtype '${String(dtype)}', which the format does not have`);
  }
  const maker = MAKERS[dtype];
  // A canvas returns bytes as Uint8ClampedArray.
  const isClamped = maker === Uint8Array && (data as unknown) instanceof Uint8ClampedArray;
  if (!(data instanceof maker) && !isClamped) {
    throw new BadInputError(`${what}: ${Object.prototype.toString.call(data)} cannot be stored as ${dtype}`);
  }
  const isShape = shape.every((size) => Number.isInteger(size) && size >= 0);
  if (!isShape || product(shape) !== data.length) {
    throw new BadInputError(`${what} has ${data.length} elements, but the shape [${shape.join(", ")}]`);
  }
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return dtype === "bool" && bytes.some((byte) => byte > 1) ? bytes.map((byte) => (byte === 0 ? 0 : 1)) : bytes;
}
