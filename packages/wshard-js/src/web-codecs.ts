/**
 * The configuration of a `VideoDecoder` of WebCodecs for the frames of an index: the name by which browsers know a codec
 * follows from its extradata.
 */

import { viewOf } from "./bytes.js";
import { CorruptError, UnsupportedError } from "./errors.js";
import type { FrameIndex } from "./frame-index.js";

/** The members of `VideoDecoderConfig` that follow from a frame index. */
export interface DecoderConfig {
  readonly codec: string;
  /** Present if the extradata configures the decoder. */
  readonly description?: Uint8Array<ArrayBuffer>;
}

/** Returns what `VideoDecoder.configure` takes. `UnsupportedError` for images, and for codecs other than these. */
export function decoderConfig({ codec, extradata }: FrameIndex): DecoderConfig {
  switch (codec) {
    case "h264":
      return h264(extradata);
    case "hevc":
      return { codec: hevcName(extradata), description: extradata.slice() };
    case "av1":
      return { codec: av1Name(extradata) };
    case "vp8":
      return { codec };
    default:
      throw new UnsupportedError(`there is no configuration of WebCodecs for the codec '${codec}'`, {
        hint: codec === "jpeg" || codec === "png" ? "Pass the bytes to createImageBitmap." : "Decode it elsewhere.",
      });
  }
}

function h264(extradata: Uint8Array): DecoderConfig {
  if (extradata[0] === 1) {
    return { codec: `avc1.${hex(extradata.subarray(1, 4), 3)}`, description: extradata.slice() };
  }
  // Without avcC, start codes separate the units, and unit 7 begins with the profile and level.
  const at = extradata.findIndex(
    (byte, at) => byte === 1 && extradata[at - 1] === 0 && extradata[at - 2] === 0 && (extradata[at + 1]! & 31) === 7,
  );
  return { codec: `avc1.${hex(extradata.subarray(at < 0 ? extradata.length : at + 2, at + 5), 3)}` };
}

function hevcName(extradata: Uint8Array): string {
  checkLength("hevc", extradata, 13);
  const profile = extradata[1]!;
  let flags = 0;
  for (let bits = viewOf(extradata).getUint32(2), count = 0; count < 32; count++, bits >>>= 1) {
    flags = ((flags << 1) | (bits & 1)) >>> 0;
  }
  const constraints = [...extradata.subarray(6, 12)];
  while (constraints.at(-1) === 0) {
    constraints.pop();
  }
  const parts = [
    `${["", "A", "B", "C"][profile >> 6]}${profile & 31}`,
    flags.toString(16),
    `${profile & 32 ? "H" : "L"}${extradata[12]}`,
    ...constraints.map((byte) => byte.toString(16)),
  ];
  return `hvc1.${parts.join(".")}`;
}

function av1Name(extradata: Uint8Array): string {
  checkLength("av1", extradata, 4);
  const [levels, flags] = [extradata[1]!, extradata[2]!];
  const depth = flags & 0x40 ? (flags & 0x20 ? "12" : "10") : "08";
  const level = String(levels & 31).padStart(2, "0");
  return `av01.${levels >> 5}.${level}${flags & 0x80 ? "H" : "M"}.${depth}`;
}

function hex(bytes: Uint8Array, length: number): string {
  checkLength("h264", bytes, length);
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function checkLength(codec: string, extradata: Uint8Array, sizeBytes: number): void {
  if (extradata.length < sizeBytes) {
    throw new CorruptError(`the extradata of the ${codec} frames ends early, after ${extradata.length} bytes`);
  }
}
