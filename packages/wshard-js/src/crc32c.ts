/**
 * CRC-32C, assembled here for WebAssembly: recordings and loading spend much of their time in it, and the hashing
 * library takes 8 bytes at a time and returns text.
 *
 * The loop takes 16 bytes at a time and looks each of them up in a table of its own, so that the lookups do not wait for
 * one another. `digests.test.ts` compares it with the hashing library.
 */

/** The polynomial of CRC-32C, in reversed bit order. */
export const CASTAGNOLI = 0x82f63b78;

const STEP_BYTES = 16;
const TABLE_BYTES = 1024;
/** Bytes are copied behind the tables. */
const BUFFER_AT = STEP_BYTES * TABLE_BYTES;
const BUFFER_BYTES = 3 * BUFFER_AT;
const PAGES = (BUFFER_AT + BUFFER_BYTES) / 65_536;

// Opcodes of WebAssembly.
const [LOOP, END, BRANCH_IF] = [0x03, 0x0b, 0x0d] as const;
const [GET, SET, TEE, LOAD, CONST] = [0x20, 0x21, 0x22, 0x28, 0x41] as const;
const [LESS_UNSIGNED, ADD, AND, XOR, SHIFT_LEFT, SHIFT_RIGHT] = [0x49, 0x6a, 0x71, 0x73, 0x74, 0x76] as const;
const [I32, FUNCTION, NO_RESULT] = [0x7f, 0x60, 0x40] as const;
/** Local variables: the position, the end, the checksum, and the words of this step. */
const [AT, STOP, SUM, WORDS] = [0, 1, 2, 3] as const;

interface Exports {
  readonly memory: WebAssembly.Memory;
  /** Continues the state `sum` over the bytes from `at` to `stop`, at least one step. */
  readonly advance: (at: number, stop: number, sum: number) => number;
}

/** Returns a function that continues a state, −1 at the start, over bytes. The checksum is the complement of the state. */
export function makeCrc32c(): (state: number, data: Uint8Array) => number {
  const { memory, advance } = new WebAssembly.Instance(new WebAssembly.Module(assemble())).exports as unknown as Exports;
  const table = new Int32Array(memory.buffer, 0, BUFFER_AT / 4);
  fillTables(table);
  const buffer = new Uint8Array(memory.buffer, BUFFER_AT, BUFFER_BYTES);
  return (state, data) => {
    let at = 0;
    for (let end = data.length - (data.length % STEP_BYTES); at < end;) {
      const piece = data.subarray(at, Math.min(at + BUFFER_BYTES, end));
      buffer.set(piece);
      state = advance(BUFFER_AT, BUFFER_AT + piece.length, state);
      at += piece.length;
    }
    for (; at < data.length; at++) {
      state = (state >>> 8) ^ table[(state ^ data[at]!) & 255]!;
    }
    return state;
  };
}

/** Table `n` has, for each byte, the state after that byte and `n` zero bytes. */
function fillTables(table: Int32Array): void {
  for (let byte = 0; byte < 256; byte++) {
    let state = byte;
    for (let bit = 0; bit < 8; bit++) {
      state = (state >>> 1) ^ (state & 1 ? CASTAGNOLI : 0);
    }
    table[byte] = state;
  }
  for (let at = 256; at < table.length; at++) {
    const before = table[at - 256]!;
    table[at] = (before >>> 8) ^ table[before & 255]!;
  }
}

/** Returns a module with the exports above. */
function assemble(): Uint8Array<ArrayBuffer> {
  const code = [1, STEP_BYTES / 4, I32, ...stepLoop(), GET, SUM, END];
  return Uint8Array.from([
    ...[0, ...ascii("asm"), 1, 0, 0, 0],
    ...section(1, [1, FUNCTION, 3, I32, I32, I32, 1, I32]),
    ...section(3, [1, 0]),
    ...section(5, [1, 0, PAGES]),
    ...section(7, [2, ...named("memory"), 2, 0, ...named("advance"), 0, 0]),
    ...section(10, [1, ...unsigned(code.length), ...code]),
  ]);
}

function stepLoop(): number[] {
  const words = [0, 1, 2, 3].flatMap((word) => {
    const mixed = word === 0 ? [GET, SUM, XOR] : [];
    return [GET, AT, LOAD, 2, 4 * word, ...mixed, SET, WORDS + word];
  });
  // The first word depends on the last step, so it comes last.
  const bytes = Array.from({ length: STEP_BYTES }, (_, at) => STEP_BYTES - 1 - at);
  const lookups = bytes.flatMap((byte, count) => [
    ...[GET, WORDS + (byte >> 2), ...entryOffset(byte & 3)],
    ...[LOAD, 2, ...unsigned(TABLE_BYTES * (STEP_BYTES - 1 - byte)), ...(count === 0 ? [] : [XOR])],
  ]);
  const next = [GET, AT, CONST, STEP_BYTES, ADD, TEE, AT, GET, STOP, LESS_UNSIGNED, BRANCH_IF, 0];
  return [LOOP, NO_RESULT, ...words, ...lookups, SET, SUM, ...next, END];
}

/** Takes one byte of a word, times the size of an entry. */
function entryOffset(byte: number): number[] {
  const shift = byte === 0 ? [CONST, 2, SHIFT_LEFT] : [CONST, 8 * byte - 2, SHIFT_RIGHT];
  const mask = [0xfc, 0x07]; // 1020 as a signed number of variable length
  return [...shift, CONST, ...mask, AND];
}

function section(id: number, content: readonly number[]): number[] {
  return [id, ...unsigned(content.length), ...content];
}

function named(name: string): number[] {
  return [name.length, ...ascii(name)];
}

function ascii(text: string): number[] {
  return [...text].map((letter) => letter.charCodeAt(0));
}

/** Encodes a number in groups of seven bits. */
function unsigned(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...unsigned(value >> 7)];
}
