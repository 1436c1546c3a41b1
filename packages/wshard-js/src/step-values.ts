/**
 * The values of one step of a recording: the buffer of each channel, and checks of what a caller passes.
 * Implements the steps of "Recording" of the specification.
 */

import { parseCompression, type CompressionName } from "./codecs.js";
import { decodeArray, dtypeBytes, emptyArray, product, type DType, type NdArray, type TypedArray } from "./dtypes.js";
import { BadInputError, CorruptError, SchemaMismatchError, UnsupportedError } from "./errors.js";
import { merged, without, type Json, type JsonObject } from "./json-read.js";
import { sameJson } from "./json-write.js";
import { parseChannel, type ChannelSpec } from "./metadata.js";
import { fromNumbers } from "./numbers.js";

/** The declaration of a channel to record. Further members are stored with it. */
export interface StreamChannel {
  readonly id: string;
  readonly dtype: DType;
  /** The shape of one step; the default is a scalar. */
  readonly shape?: readonly number[];
  /** The block, in `signal/` (the default), `action/`, `omen/` or `uncert/`. */
  readonly signalBlock?: string;
  readonly compression?: CompressionName;
  readonly attributes?: JsonObject;
}

/**
 * One step of a channel: the typed array of its dtype, an array with dtype and shape, or numbers that fit. A scalar may be
 * passed alone. Booleans of a `Uint8Array` are 0 and 1; f16 and bf16 are bits in a `Uint16Array`.
 */
export type StepValue = TypedArray | NdArray | readonly (number | bigint | boolean)[] | number | bigint | boolean;

const LANE = /^(?:signal|action|omen|uncert)\/./s;

/** Parses a declaration, and its compression as it is stored in a journal. */
export function parseStreamChannel(
  item: StreamChannel,
): readonly [spec: ChannelSpec, compression: readonly Json[] | null] {
  const { id, dtype, shape = [], signalBlock = `signal/${id}`, attributes = {} } = item;
  const spec = parseSpec(merged(attributes, { id, dtype, shape, signal_block: signalBlock }), id);
  if (!LANE.test(spec.block)) {
    throw new BadInputError(`the block '${spec.block}' is not in one of signal/, action/, omen/, uncert/`);
  }
  if (item.compression === undefined) {
    return [spec, null];
  }
  const { codec, level } = parseCompression(item.compression);
  return [spec, [codec, level]];
}

function parseSpec(document: JsonObject, id: string): ChannelSpec {
  try {
    return parseChannel(document);
  } catch (cause) {
    if (cause instanceof CorruptError || cause instanceof UnsupportedError) {
      throw new BadInputError(`the channel '${id}' cannot be recorded: ${cause.message}`, { cause });
    }
    throw cause;
  }
}

/** Returns the declaration of a part, as a journal stores it. */
export function partDocument({ id, dtype, shape, block, attributes }: ChannelSpec): JsonObject {
  return merged(without(attributes, new Set()), { id, dtype, shape, signal_block: block });
}

/** The buffered rows of one part, within the record that a flush appends. A step is checked before it is put. */
export class PartBuffer {
  /** The rows within the record. */
  readonly bytes: Uint8Array;
  /** The elements of a step. */
  readonly width: number;
  private readonly stepBytes: number;
  /** An array of the type of the part: over the record if it is aligned, else for one step. */
  private readonly rows: NdArray;
  private readonly isAligned: boolean;

  constructor(
    readonly spec: ChannelSpec,
    record: Uint8Array,
    start: number,
    rowCount: number,
  ) {
    this.width = product(spec.shape);
    this.stepBytes = this.width * dtypeBytes(spec.dtype);
    this.bytes = record.subarray(start, start + rowCount * this.stepBytes);
    this.isAligned = this.bytes.byteOffset % dtypeBytes(spec.dtype) === 0;
    const shape = [rowCount, ...spec.shape];
    this.rows = this.isAligned ? decodeArray(this.bytes, spec.dtype, shape) : emptyArray(spec.dtype, spec.shape);
  }

  /** Returns the elements of a value; `SchemaMismatchError` if it does not fit the channel. */
  check(value: StepValue | undefined): TypedArray {
    const { dtype } = this.spec;
    // The usual case first: an array of exactly the type.
    if (value !== undefined && value instanceof (this.rows.data.constructor as new () => TypedArray)) {
      const data = value as TypedArray;
      if (data.length !== this.width) {
        throw this.mismatch(`has ${data.length} elements instead of ${this.width}`);
      }
      if (dtype === "bool" && (data as Uint8Array).some((byte) => byte > 1)) {
        throw this.mismatch("has booleans other than 0 and 1");
      }
      return data;
    }
    if (value === undefined || value === null) {
      throw this.mismatch("is missing");
    }
    if (ArrayBuffer.isView(value)) {
      throw this.mismatch(`is a ${value.constructor.name}, which cannot hold ${dtype}`);
    }
    if (typeof value === "object" && "dtype" in value) {
      if (value.dtype !== dtype || !sameJson(value.shape, this.spec.shape)) {
        const wanted = `${dtype}[${this.spec.shape.join(", ")}]`;
        throw this.mismatch(`is ${value.dtype}[${value.shape.join(", ")}] instead of ${wanted}`);
      }
      return this.check(value.data);
    }
    return this.convert(typeof value === "object" ? value : [value]);
  }

  private convert(values: readonly (number | bigint | boolean)[]): TypedArray {
    const { dtype } = this.spec;
    if (!Array.isArray(values) || values.length !== this.width) {
      throw this.mismatch(`has ${String(values.length)} elements instead of ${this.width}`);
    }
    if (dtype === "i64" || dtype === "u64") {
      return this.convertWide(dtype, values);
    }
    const isBool = dtype === "bool";
    const odd = values.find((value) => typeof value !== "number" && !(isBool && typeof value === "boolean"));
    if (odd !== undefined || (isBool && !values.every((value) => Number(value) === 0 || Number(value) === 1))) {
      throw this.mismatch(`has values that are not ${isBool ? "booleans" : "numbers"}`);
    }
    const numbers = values.map(Number);
    try {
      const { data } = fromNumbers(dtype, [this.width], numbers);
      if (dtype === "f32" && numbers.some((value, at) => Number.isFinite(value) && !Number.isFinite(data[at]))) {
        throw new BadInputError("a number is too large for f32");
      }
      return data;
    } catch (cause) {
      throw cause instanceof BadInputError ? this.mismatch(`does not fit: ${cause.message}`) : cause;
    }
  }

  private convertWide(dtype: "i64" | "u64", values: readonly (number | bigint | boolean)[]): TypedArray {
    const isWhole = values.every((value) => typeof value === "bigint" || Number.isSafeInteger(value));
    const numbers = isWhole ? values.map(BigInt) : [];
    const wrap = dtype === "i64" ? BigInt.asIntN : BigInt.asUintN;
    if (!isWhole || numbers.some((value) => wrap(64, value) !== value)) {
      throw this.mismatch(`has values that are no integers of ${dtype}`);
    }
    return dtype === "i64" ? BigInt64Array.from(numbers) : BigUint64Array.from(numbers);
  }

  put(row: number, data: TypedArray): void {
    if (this.isAligned) {
      (this.rows.data as { set(data: ArrayLike<number | bigint>, at: number): void }).set(data, row * this.width);
    } else {
      this.bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), row * this.stepBytes);
    }
  }

  /** Puts the number of a part with one element to a step. */
  putNumber(row: number, value: number | bigint): void {
    const cells = this.rows.data as unknown as (number | bigint)[];
    cells[this.isAligned ? row : 0] = value;
    if (!this.isAligned) {
      this.put(row, this.rows.data);
    }
  }

  private mismatch(what: string): SchemaMismatchError {
    return new SchemaMismatchError(`channel '${this.spec.id}' ${what}`);
  }
}
