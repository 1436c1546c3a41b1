/**
 * Strict JSON of metadata blocks. Implements "JSON" of the specification.
 *
 * `JSON.parse` accepts duplicate keys, rounds large integers, accepts lone surrogates, and does not distinguish 30
 * from 30.0. Here, integers beyond 2⁵³ become `bigint`. A side table records which numbers were written as fractions,
 * so that a rewrite writes the same text.
 */

import { decodeText, isWellFormed } from "./bytes.js";
import { CorruptError, LimitExceededError } from "./errors.js";
import { MAX_JSON_BYTES, MAX_JSON_DEPTH } from "./limits.js";

export type Json = null | boolean | number | bigint | string | readonly Json[] | JsonObject;

export interface JsonObject {
  readonly [key: string]: Json;
}

type Container = JsonObject | readonly Json[];

const fractions = new WeakMap<Container, Set<string>>();

/** Records that a number in this object or list is a fraction, even if its value is an integer. */
export function markFraction(container: Container, key: string | number): void {
  const keys = fractions.get(container) ?? new Set<string>();
  fractions.set(container, keys.add(String(key)));
}

export function isFraction(container: Container, key: string | number): boolean {
  return fractions.get(container)?.has(String(key)) ?? false;
}

/** Decodes one JSON object without duplicate keys, NaN, or deep nesting. */
export function decodeObject(data: Uint8Array, what: string): JsonObject {
  if (data.length > MAX_JSON_BYTES) {
    throw new LimitExceededError(`${what} has ${data.length} bytes; the most is ${MAX_JSON_BYTES}`);
  }
  let value: Json;
  try {
    value = new Reader(decodeText(data)).document();
  } catch (cause) {
    const why = cause instanceof SyntaxError ? cause.message : "it is not UTF-8";
    throw new CorruptError(`${what} is not valid JSON: ${why}`, { cause });
  }
  if (!isObject(value)) {
    throw new CorruptError(`${what} is not a JSON object`);
  }
  return value;
}

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function isList(value: Json | undefined): value is readonly Json[] {
  return Array.isArray(value);
}

/** Returns an own member of the object. */
export function member(object: JsonObject, key: string): Json | undefined {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

/** Returns a new object with the members of these; the last of equal keys counts. */
export function merged(...objects: readonly JsonObject[]): JsonObject {
  const out: Record<string, Json> = {};
  for (const object of objects) {
    for (const key of Object.keys(object)) {
      define(out, key, object[key] as Json, isFraction(object, key));
    }
  }
  return out;
}

/** Returns an object with these members. */
export function objectOf(members: Iterable<readonly [string, Json]>): JsonObject {
  const out: Record<string, Json> = {};
  for (const [key, value] of members) {
    define(out, key, value, false);
  }
  return out;
}

/** Returns a new object without these members. */
export function without(object: JsonObject, keys: ReadonlySet<string>): JsonObject {
  const out: Record<string, Json> = {};
  for (const key of Object.keys(object)) {
    if (!keys.has(key)) {
      define(out, key, object[key] as Json, isFraction(object, key));
    }
  }
  return out;
}

/** Defines a member instead of assigning it, because the key may be `__proto__`. */
function define(object: Record<string, Json>, key: string, value: Json, isSpelledAsFraction: boolean): void {
  Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
  if (isSpelledAsFraction) {
    markFraction(object, key);
  } else {
    fractions.get(object)?.delete(key);
  }
}

/** Returns whether the member is an integer from 0 to `most`, written as an integer. */
export function isCount(container: Container, key: string | number, most: number | bigint): boolean {
  const value: Json | undefined = isList(container) ? container[Number(key)] : member(container, String(key));
  if (typeof value === "bigint") {
    return value >= 0n && value <= most;
  }
  const isInteger = typeof value === "number" && Number.isInteger(value) && !isFraction(container, key);
  return isInteger && value >= 0 && value <= most;
}

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/y;
const PLAIN_TEXT = /[^"\\\u0000-\u001f]*/y;
const HEX = /[0-9a-fA-F]{4}/y;
const ESCAPES: Readonly<Record<string, string>> = {
  '"': '"',
  "\\": "\\",
  "/": "/",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
};

class Reader {
  private at = 0;

  constructor(private readonly text: string) {}

  document(): Json {
    const value = this.value(0)[0];
    if (this.at !== this.text.length) {
      this.refuse("there is text after the value");
    }
    return value;
  }

  /** Returns the value, and whether it is a number written as a fraction. */
  private value(depth: number): [Json, boolean] {
    if (depth > MAX_JSON_DEPTH) {
      this.refuse(`nested deeper than ${MAX_JSON_DEPTH} levels`);
    }
    this.take(SPACE);
    const found = this.bare(depth);
    this.take(SPACE);
    return found;
  }

  private bare(depth: number): [Json, boolean] {
    switch (this.text[this.at]) {
      case "{":
        return [this.object(depth), false];
      case "[":
        return [this.list(depth), false];
      case '"':
        return [this.string(), false];
      case "t":
        return [this.word("true", true), false];
      case "f":
        return [this.word("false", false), false];
      case "n":
        return [this.word("null", null), false];
      default:
        return this.number();
    }
  }

  private object(depth: number): JsonObject {
    const out: Record<string, Json> = {};
    this.at++;
    this.take(SPACE);
    if (this.skip("}")) {
      return out;
    }
    do {
      this.take(SPACE);
      const key = this.text[this.at] === '"' ? this.string() : this.refuse("a key is missing");
      if (Object.hasOwn(out, key)) {
        this.refuse(`the key ${JSON.stringify(key)} appears twice in one object`);
      }
      this.take(SPACE);
      if (!this.skip(":")) {
        this.refuse("a colon is missing");
      }
      define(out, key, ...this.value(depth + 1));
    } while (this.skip(","));
    return this.skip("}") ? out : this.refuse("an object does not end");
  }

  private list(depth: number): readonly Json[] {
    const out: Json[] = [];
    this.at++;
    this.take(SPACE);
    if (this.skip("]")) {
      return out;
    }
    do {
      const [value, isSpelledAsFraction] = this.value(depth + 1);
      if (isSpelledAsFraction) {
        markFraction(out, out.length);
      }
      out.push(value);
    } while (this.skip(","));
    return this.skip("]") ? out : this.refuse("a list does not end");
  }

  private string(): string {
    let out = "";
    let isEscaped = false;
    this.at++;
    for (;;) {
      out += this.take(PLAIN_TEXT)![0];
      if (this.skip('"')) {
        break;
      }
      if (!this.skip("\\")) {
        this.refuse("a string does not end");
      }
      if (this.skip("u")) {
        const hex = this.take(HEX) ?? this.refuse("an escape is damaged");
        out += String.fromCharCode(parseInt(hex[0], 16));
        isEscaped = true;
      } else {
        out += ESCAPES[this.text[this.at++] ?? ""] ?? this.refuse("an escape is unknown");
      }
    }
    // Only an escape can produce a lone surrogate.
    return isEscaped && !isWellFormed(out) ? this.refuse("a lone surrogate") : out;
  }

  private number(): [Json, boolean] {
    const found = this.take(NUMBER) ?? this.refuse("there is no value");
    const value = Number(found[0]);
    if (!Number.isFinite(value)) {
      this.refuse(`the number ${found[0].slice(0, 40)} does not fit in float64`);
    }
    if (found[1] !== undefined || found[2] !== undefined) {
      return [value, true];
    }
    // Integers have no negative zero.
    return [Number.isSafeInteger(value) ? value + 0 : BigInt(found[0]), false];
  }

  private word(text: string, value: boolean | null): Json {
    return this.text.startsWith(text, this.at) ? ((this.at += text.length), value) : this.refuse("there is no value");
  }

  private take(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    this.at += found?.[0].length ?? 0;
    return found;
  }

  private skip(character: string): boolean {
    const isThere = this.text[this.at] === character;
    this.at += isThere ? 1 : 0;
    return isThere;
  }

  private refuse(why: string): never {
    throw new SyntaxError(`${why}, at character ${this.at}`);
  }
}
