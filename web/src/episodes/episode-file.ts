// An episode as the worker reads it: one file, or several that follow each other, by byte range.

import { joinFiles, openWShard, timebaseHz, toNumbers, WShardError, type ChannelInfo, type EpisodeInfo, type JoinedFile, type WShardFile } from '@warpdata/wshard'
import type { Channel, Opened, Values } from './messages'

const NANOSECONDS = 1e9
const MOST_PLOTTED = 4096
const LEAST_EDGE = 8
/** Rows of a channel that may differ from the time of a step, and count as not later: a millionth of a row. */
const ROUNDING = 1e-6

export interface Place {
  part: WShardFile
  /** The step within this file. */
  step: number
  number: number
}

export class EpisodeFile {
  private constructor(
    readonly parts: readonly WShardFile[],
    private readonly lengths: readonly number[],
    private readonly joined: JoinedFile | null,
    readonly info: EpisodeInfo,
    private readonly listed: readonly ChannelInfo[],
  ) {}

  static async open(urls: string[]): Promise<EpisodeFile> {
    const parts = await Promise.all(urls.map((url) => openWShard(url)))
    const infos = await Promise.all(parts.map((part) => part.info()))
    const joined = parts.length > 1 ? await joinFiles(parts) : null
    const info = joined ? await joined.info() : infos[0]!
    return new EpisodeFile(parts, infos.map((one) => one!.length), joined, info!, await parts[0]!.channels())
  }

  get hz(): number | null {
    return timebaseHz(this.info.timebase)
  }

  async describe(): Promise<Opened> {
    const found: Channel[] = []
    const ids = new Map(this.listed.filter(({ lane }) => lane === 'signal' || lane === 'action').map((one) => [one.id, one.block]))
    for (const one of this.listed) {
      const { block, lane, id, dtype, shape, rateHz, encoding } = one
      const rows = encoding === null && this.joined?.has(block) ? (await this.joined.block(block).blockType()).rows : one.rows
      found.push({ block, lane, id, dtype, shape: [...shape], rows, rateHz, encoding, show: howToShow(one), about: aboutOf(block, lane, ids) })
    }
    return { id: this.info.id, length: this.info.length, hz: this.hz, channels: found }
  }

  /** Return the file of a step, and the step within it. */
  place(step: number): Place {
    let [number, first] = [0, 0]
    while (number < this.lengths.length - 1 && step >= first + this.lengths[number]!) first += this.lengths[number++]!
    return { part: this.parts[number]!, step: step - first, number }
  }

  block(name: string): ReturnType<WShardFile['block']> | ReturnType<JoinedFile['block']> {
    return this.joined?.has(name) ? this.joined.block(name) : this.parts[0]!.block(name)
  }

  /** Return the times of steps in seconds, from the first step of the episode on. */
  async times(start: number, stop: number): Promise<Float64Array> {
    const hz = this.hz
    if (hz !== null) return Float64Array.from({ length: stop - start }, (_, at) => (start + at) / hz)
    const block = this.block('time/timestamps_ns')
    const [first, found] = await Promise.all([block.window(0, 1), block.window(start, stop)])
    const zero = (first.data as BigInt64Array)[0]!
    return Float64Array.from(found.data as BigInt64Array, (time) => Number(time - zero) / NANOSECONDS)
  }

  /** Return the values of steps `start` up to `stop`: the first `width` numbers of each row. */
  async values(name: string, start: number, stop: number, width: number): Promise<Values> {
    const block = this.block(name)
    const { rows, shape } = await block.blockType()
    const own = this.listed.find((one) => one.block === name)?.rateHz ?? null
    const isByStep = rows === this.info.length
    const [first, last, at] = isByStep ? stepsBetween(start, Math.min(stop, rows)) : await this.rowsBetween(rows, own, start, stop)
    const all = shape.reduce((product, size) => product * size, 1)
    const kept = Math.min(width, all)
    const numbers = toNumbers(await block.window(first, Math.max(first, last)))
    const data = new Float64Array((last - first) * kept)
    for (let row = 0; row < last - first; row++) {
      for (let part = 0; part < kept; part++) data[row * kept + part] = Number(numbers[row * all + part])
    }
    return { at, width: kept, data }
  }

  /** Return the rows of a channel with its own rate over some steps, and where they are among the steps. */
  private async rowsBetween(rows: number, rate: number | null, start: number, stop: number): Promise<[number, number, Float64Array<ArrayBuffer>]> {
    if (!rate) return [0, 0, new Float64Array(0)]
    const times = await this.times(start, stop)
    const first = Math.max(0, Math.floor(times[0]! * rate + ROUNDING))
    const last = Math.min(rows, Math.floor(times.at(-1)! * rate + ROUNDING) + 1)
    let step = 0
    const at = Float64Array.from({ length: Math.max(0, last - first) }, (_, row) => {
      const time = (first + row) / rate
      while (step < times.length - 2 && times[step + 1]! <= time) step++
      const length = (times[step + 1] ?? times[step]! + 1) - times[step]!
      return start + step + Math.max(0, (time - times[step]!) / length)
    })
    return [Math.min(first, rows), last, at]
  }

  async close(): Promise<void> {
    await Promise.all(this.parts.map((part) => part.close()))
  }
}

function stepsBetween(start: number, stop: number): [number, number, Float64Array<ArrayBuffer>] {
  return [start, stop, Float64Array.from({ length: stop - start }, (_, row) => start + row)]
}

function howToShow({ dtype, shape, encoding, hasFrames }: ChannelInfo): Channel['show'] {
  if (encoding !== null) return hasFrames ? 'camera' : 'none'
  const [height = 0, width = 0, colors = 1] = shape
  const isImage = dtype === 'u8' && (shape.length === 2 || (shape.length === 3 && [1, 3, 4].includes(colors)))
  if (isImage && height >= LEAST_EDGE && width >= LEAST_EDGE) return 'camera'
  return shape.reduce((product, size) => product * size, 1) <= MOST_PLOTTED ? 'signal' : 'none'
}

/** Channels and models may both have slashes; the longest channel counts. */
function aboutOf(block: string, lane: string, ids: ReadonlyMap<string, string>): Channel['about'] {
  if (lane !== 'omen' && lane !== 'uncert') return null
  const path = block.slice(lane.length + 1)
  const id = [...ids.keys()].filter((one) => path.startsWith(`${one}/`)).sort((a, b) => b.length - a.length)[0]
  if (id === undefined) return null
  const rest = path.slice(id.length + 1)
  const cut = lane === 'uncert' ? rest.lastIndexOf('/') : -1
  return { block: ids.get(id)!, model: cut < 0 ? rest : rest.slice(0, cut), type: cut < 0 ? '' : rest.slice(cut + 1) }
}

export function explain(error: unknown): { status: number; code: string; detail: string; hint?: string | null } {
  if (error instanceof WShardError) return { status: 0, code: error.kind, detail: error.message, hint: error.hint ?? null }
  return { status: 0, code: 'page', detail: error instanceof Error ? error.message : String(error) }
}
