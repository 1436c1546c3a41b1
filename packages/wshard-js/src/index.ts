/**
 * WShard: one episode of a robot or an agent in one file. Only the names listed here are public.
 *
 * docs/specs/wshard.md of the project is the normative text.
 */

export {
  encodeChunkManifest,
  loadChunkManifest,
  validateChunkContinuity,
  type ChunkEntry,
  type ChunkManifest,
} from "./chunked.js";
export { validateChunkFiles } from "./chunk-load.js";
export type { ChannelInfo } from "./channel-list.js";
export type { Codec, CompressionName } from "./codecs.js";
export type { BlockEntry, Header } from "./container.js";
export { DTYPES, dtypeBytes, type DType, type ElementArrays, type NdArray, type TypedArray } from "./dtypes.js";
export {
  AccessDeniedError,
  AlreadyExistsError,
  BadInputError,
  ConflictError,
  CorruptError,
  LimitExceededError,
  NotFoundError,
  ObjectNotFoundError,
  SchemaMismatchError,
  StorageError,
  UnsupportedError,
  WShardError,
} from "./errors.js";
export { FrameIndex, framesBlock, type FrameEntry } from "./frame-index.js";
export { openHttp, type FetchLike, type HttpOptions, type ResponseLike } from "./http.js";
export { JoinedBlock, JoinedFile, joinFiles, openJoined, type ChunkOpener, type JoinOptions } from "./joined.js";
export type { Json, JsonObject } from "./json-read.js";
export { loadWShard, type LoadOptions } from "./load.js";
export type { BlockType } from "./block-type.js";
export type { ChannelSpec, EpisodeInfo } from "./metadata.js";
export {
  channel,
  timebaseHz,
  type Block,
  type Channel,
  type ChannelOptions,
  type ChunkPlace,
  type Episode,
  type EpisodeInit,
  type Named,
  type Origin,
  type Timebase,
} from "./model.js";
export { fromNumbers, toNumbers } from "./numbers.js";
export type { FileHandleLike } from "./platform.js";
export { openWShard, type BlockReader, type EncodedFrame, type OpenOptions, type WShardFile } from "./reader.js";
export { recover, type Recovery, type RecoverOptions } from "./recovery.js";
export { packResidual, unpackResidual } from "./residual.js";
export { encodeWShard, saveWShard, type Encoded, type SaveOptions } from "./save.js";
export { identity, joinedIdentity } from "./identity.js";
export type { BlobLike, ByteSource, Source } from "./source.js";
export type { StepValue, StreamChannel } from "./step-values.js";
export { WShardStreamWriter, type EpisodeStart, type StepSeries, type StreamOptions } from "./stream-writer.js";
export { decoderConfig, type DecoderConfig } from "./web-codecs.js";
