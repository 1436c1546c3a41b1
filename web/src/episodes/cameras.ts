// Frames of a camera as bitmaps: images and video by the index of the file, and arrays of pixels.
//
// A frame that is looked at alone is read alone. While an episode plays, the frames behind it come with it in one range.

import { decoderConfig, type EncodedFrame, type FrameIndex } from '@warpdata/wshard'
import type { EpisodeFile, Place } from './episode-file'

const AHEAD_BYTES = 1 << 20
const AHEAD_FRAMES = 32
const DECODED_BYTES = 160 * (1 << 20)
const TOLERANCE_NS = 1_000_000
const NANOSECONDS = 1e9

interface Camera {
  index: FrameIndex
  /** Bytes of images that were read ahead, by frame. */
  encoded: Map<number, EncodedFrame>
  /** Decoded frames of a video, by frame. */
  decoded: Map<number, ImageBitmap>
}

export class Cameras {
  private readonly cameras = new Map<string, Promise<Camera>>()
  private readonly pixels = new Map<string, { start: number; images: ImageData[] }>()

  constructor(private readonly file: EpisodeFile) {}

  /** Return the frame of a step. The caller closes it. */
  async frame(block: string, encoding: string | null, step: number, isPlaying: boolean): Promise<ImageBitmap> {
    if (encoding === null) return createImageBitmap(await this.array(block, step, isPlaying))
    const place = this.file.place(step)
    const camera = await this.camera(block, place)
    const frame = await this.frameOf(block, camera.index, place)
    const isImage = camera.index.codec === 'jpeg' || camera.index.codec === 'png'
    return isImage ? this.image(block, camera, place, frame, isPlaying) : this.video(block, camera, place, frame)
  }

  private camera(block: string, { part, number }: Place): Promise<Camera> {
    const key = `${number} ${block}`
    let found = this.cameras.get(key)
    if (!found) {
      found = part.frameIndex(block).then((index) => ({ index, encoded: new Map(), decoded: new Map() }))
      found.catch(() => this.cameras.delete(key))
      this.cameras.set(key, found)
    }
    return found
  }

  /** Return the frame of a step, as the specification of episodes aligns them. */
  private async frameOf(block: string, index: FrameIndex, { part, step }: Place): Promise<number> {
    const info = (await part.info())!
    const rate = Number(info.channels.get(block)?.attributes['sampling_rate_hz'] ?? 0)
    if (!(rate > 0) && index.length === info.length) return step
    const [first, time] = [(await part.timesNs(0, 1))[0]!, (await part.timesNs(step, step + 1))[0]!]
    if (rate > 0) return Math.min(index.length - 1, Math.floor((Number(time - first) / NANOSECONDS) * rate + 1e-6))
    return index.frameAt(index.timesNs[0]! + (time - first) + BigInt(TOLERANCE_NS - 1))
  }

  private async image(block: string, camera: Camera, { part }: Place, frame: number, isPlaying: boolean): Promise<ImageBitmap> {
    let found = camera.encoded.get(frame)
    if (!found) {
      camera.encoded.clear()
      const last = isPlaying ? lastAhead(camera.index, frame) : frame
      const read = await part.block(block).readFrames(camera.index, frame, last)
      read.forEach((one, at) => camera.encoded.set(frame + at, one))
      found = camera.encoded.get(frame)!
    }
    return createImageBitmap(new Blob([found.data], { type: `image/${camera.index.codec}` }))
  }

  /** Decode the group of a frame: all of it if it fits in memory, else up to some frames behind the wanted one. */
  private async video(block: string, camera: Camera, { part }: Place, frame: number): Promise<ImageBitmap> {
    const known = camera.decoded.get(frame)
    if (known) return createImageBitmap(known)
    if (typeof VideoDecoder === 'undefined') {
      throw new Error('This browser does not decode video here: pages need https, or an address of this machine.')
    }
    const { index } = camera
    const groups = index.groupNumbers
    const [shape, most] = [this.frameBytes(part, block), AHEAD_FRAMES]
    const fits = Math.max(most, Math.floor(DECODED_BYTES / (await shape)))
    const first = groups.indexOf(groups[frame]!)
    let last = frame
    while (last + 1 < groups.length && groups[last + 1] === groups[frame] && last + 1 - first < fits) last++
    const read = await part.block(block).readFrames(index, frame, last)
    for (const old of camera.decoded.values()) old.close()
    camera.decoded.clear()
    const numbers = new Map(Array.from(index.timesNs, (time, at) => [Number(time / 1000n), at]))
    const wanted: Promise<void>[] = []
    let failure: unknown
    const decoder = new VideoDecoder({
      output: (shown) => {
        const at = numbers.get(shown.timestamp)
        if (at === undefined || at > last || at < last - fits + 1) shown.close()
        else wanted.push(createImageBitmap(shown).then((bitmap) => void camera.decoded.set(at, bitmap)).finally(() => shown.close()))
      },
      error: (error) => (failure = error),
    })
    decoder.configure({ ...decoderConfig(index), optimizeForLatency: true })
    for (const { data, timeNs, isKey } of read) {
      decoder.decode(new EncodedVideoChunk({ type: isKey ? 'key' : 'delta', timestamp: Number(timeNs / 1000n), data }))
    }
    await decoder.flush().catch((error: unknown) => (failure ??= error))
    await Promise.all(wanted)
    if (decoder.state !== 'closed') decoder.close()
    const found = camera.decoded.get(frame)
    if (!found) throw failure instanceof Error ? failure : new Error(`frame ${frame} of ${block} could not be decoded`)
    return createImageBitmap(found)
  }

  private async frameBytes(part: Place['part'], block: string): Promise<number> {
    const [height, width] = (await part.info())!.channels.get(block)?.shape ?? []
    return (height || 720) * (width || 1280) * 4
  }

  private async array(block: string, step: number, isPlaying: boolean): Promise<ImageData> {
    const kept = this.pixels.get(block)
    const known = kept?.images[step - kept.start]
    if (known) return known
    const reader = this.file.block(block)
    const { shape, rows } = await reader.blockType()
    const [height, width, colors = 1] = shape as [number, number, number?]
    const size = height * width * colors
    const stop = isPlaying ? Math.min(rows, step + Math.max(1, Math.min(AHEAD_FRAMES, Math.floor(AHEAD_BYTES / size)))) : step + 1
    const { data } = await reader.window(step, stop)
    const images = Array.from({ length: stop - step }, (_, at) => toImage(data.subarray(at * size, (at + 1) * size) as Uint8Array, height, width, colors))
    this.pixels.set(block, { start: step, images })
    return images[0]!
  }

  async close(): Promise<void> {
    for (const camera of await Promise.allSettled(this.cameras.values())) {
      if (camera.status === 'fulfilled') for (const one of camera.value.decoded.values()) one.close()
    }
    this.cameras.clear()
  }
}

/** Return the last frame to read with one that plays. */
function lastAhead(index: FrameIndex, frame: number): number {
  let [last, size] = [frame, index.entries[index.entryOf(frame)]!.sizeBytes]
  while (last + 1 < index.length && last + 1 - frame < AHEAD_FRAMES) {
    size += index.entries[index.entryOf(last + 1)]!.sizeBytes
    if (size > AHEAD_BYTES) break
    last += 1
  }
  return last
}

function toImage(pixels: Uint8Array, height: number, width: number, colors: number): ImageData {
  const data = new Uint8ClampedArray(height * width * 4)
  for (let at = 0; at < height * width; at++) {
    const from = at * colors
    data[at * 4] = pixels[from]!
    data[at * 4 + 1] = pixels[colors > 1 ? from + 1 : from]!
    data[at * 4 + 2] = pixels[colors > 1 ? from + 2 : from]!
    data[at * 4 + 3] = colors === 4 ? pixels[from + 3]! : 255
  }
  return new ImageData(data, width, height)
}
