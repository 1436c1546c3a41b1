/**
 * Canonical JSON: keys sorted by their UTF-8 bytes, no spaces, only the escapes of RFC 8785. Numbers have the same form
 * as in the Python library, so that both write the same bytes for the same episode. Implements "JSON" of the
 * specification.
 */

import { compareText, encodeText, isWellFormed } from "./bytes.js";
import { BadInputError, LimitExceededError } from "./errors.js";
import { isFraction, type Json, type JsonObject } from "./json-read.js";
import { MAX_JSON_BYTES, MAX_JSON_DEPTH } from "./limits.js";

/** Encodes a value; `BadInputError` for values that JSON cannot hold: NaN, lone surrogates, deep nesting, other types. */
export function encodeJson(value: Json): Uint8Array {
  const data = encodeText(spell(value, 0, false));
  if (data.length > MAX_JSON_BYTES) {
    throw new LimitExceededError(`the metadata has ${data.length} bytes; the most is ${MAX_JSON_BYTES}`);
  }
  return data;
}

/** Returns whether both values have the same canonical form. */
export function sameJson(left: Json, right: Json): boolean {
  return spell(left, 0, false) === spell(right, 0, false);
}

/** Formats a value for a message. */
export function show(value: Json | undefined): string {
  return value === undefined ? "nothing" : spell(value, 0, false).slice(0, 80);
}

function spell(value: Json, depth: number, isSpelledAsFraction: boolean): string {
  if (depth > MAX_JSON_DEPTH) {
    throw refusal(`it is nested deeper than ${MAX_JSON_DEPTH} levels`);
  }
  switch (typeof value) {
    case "string":
      return spellText(value);
    case "boolean":
    case "bigint":
      return String(value);
    case "number":
      return spellNumber(value, isSpelledAsFraction);
    case "object":
      return value === null ? "null" : spellContainer(value, depth);
    default:
      throw refusal(`there is a value of the type ${typeof value}`);
  }
}

function spellContainer(value: JsonObject | readonly Json[], depth: number): string {
  if (Array.isArray(value)) {
    const items = value as readonly Json[];
    return `[${items.map((item, at) => spell(item, depth + 1, isFraction(items, at))).join(",")}]`;
  }
  const object = value as JsonObject;
  const prototype: unknown = Object.getPrototypeOf(object);
  if (prototype !== Object.prototype && prototype !== null) {
    throw refusal("there is an object that is not plain");
  }
  const members = Object.keys(object)
    .sort(compareText)
    .map((key) => `${spellText(key)}:${spell(object[key] as Json, depth + 1, isFraction(object, key))}`);
  return `{${members.join(",")}}`;
}

function spellText(text: string): string {
  if (!isWellFormed(text)) {
    throw refusal("a text has a lone surrogate");
  }
  return JSON.stringify(text);
}

function spellNumber(value: number, isSpelledAsFraction: boolean): string {
  if (!Number.isFinite(value)) {
    throw refusal(`${value} is not a JSON number`);
  }
  const isInteger = Number.isSafeInteger(value) && !Object.is(value, -0);
  return isInteger && !isSpelledAsFraction ? String(value) : spellFraction(value);
}

/** Formats the shortest digits that read back as the same number, with an exponent only if the number is long. */
function spellFraction(value: number): string {
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const [mantissa, exponent] = Math.abs(value).toExponential().split("e") as [string, string];
  const digits = mantissa.replace(".", "");
  const point = Number(exponent) + 1;
  if (point > 16 || point < -3) {
    const shown = digits.length > 1 ? `${digits[0]}.${digits.slice(1)}` : digits;
    const size = String(Math.abs(point - 1)).padStart(2, "0");
    return `${sign}${shown}e${point - 1 < 0 ? "-" : "+"}${size}`;
  }
  if (point <= 0) {
    return `${sign}0.${"0".repeat(-point)}${digits}`;
  }
  const whole = digits.padEnd(point, "0");
  return `${sign}${whole.slice(0, point)}.${whole.slice(point) || "0"}`;
}

function refusal(why: string): BadInputError {
  return new BadInputError(`the metadata cannot be written as JSON: ${why}`);
}
