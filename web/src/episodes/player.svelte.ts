// The state of the player: the episode that its worker has open, the step that is shown, and the values around it.
//
// Steps are shown in windows of `span`. Only the window of the present step is read.

import { encodePath, type Problem, type Schemas } from '../api/client'
import type { DatasetState } from '../state/dataset.svelte'
import type { Answer, Answers, Ask, Channel, Opened, Values } from './messages'

const MOST_WINDOWS = 64
/** Components of a channel that are drawn. */
export const MOST_COMPONENTS = 8
export const SPANS = [64, 256, 1024, 4096]

/** A channel with the predictions of it, drawn together. */
export interface Plot {
  channel: Channel
  predictions: { model: string; block: string; uncertainty: { block: string; type: string } | null }[]
}

export class ProblemError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail)
  }
}

export class Player {
  opened = $state.raw<Opened>()
  problem = $state.raw<Problem>()
  step = $state(0)
  isPlaying = $state(false)
  speed = $state(1)
  #worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' })
  #waiting = new Map<number, { resolve: (value: never) => void; reject: (error: unknown) => void }>()
  #windows = new Map<string, Promise<Values>>()
  #number = 0

  constructor(ds: DatasetState, detail: Schemas['EpisodeDetailView'], step: number) {
    this.step = step
    this.#worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      const waiting = this.#waiting.get(data.number)
      this.#waiting.delete(data.number)
      if ('problem' in data) waiting?.reject(new ProblemError(data.problem))
      else waiting?.resolve(data.value as never)
    }
    this.#worker.onerror = () => {
      this.problem = { status: 0, code: 'page', detail: 'The reader of episodes could not be loaded.', hint: 'Load the page again.' }
    }
    this.ask({ kind: 'open', urls: detail.files.map((file) => fileUrl(ds, detail, file.chunk)) }).then(
      (opened) => {
        this.step = Math.min(this.step, Math.max(0, opened.length - 1))
        this.opened = opened
      },
      (error: unknown) => (this.problem = toProblem(error)),
    )
  }

  ask<K extends Ask['kind']>(question: Extract<Ask, { kind: K }>): Promise<Answers[K]> {
    const number = this.#number++
    return new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject })
      this.#worker.postMessage({ ...question, number })
    })
  }

  /** Return the values of a block in a window, from memory if it was read. */
  values(block: string, start: number, stop: number): Promise<Values> {
    const key = `${block} ${start} ${stop}`
    let found = this.#windows.get(key)
    if (!found) {
      found = this.ask({ kind: 'values', block, start, stop, width: MOST_COMPONENTS })
      found.catch(() => this.#windows.delete(key))
      this.#windows.set(key, found)
      if (this.#windows.size > MOST_WINDOWS) this.#windows.delete(this.#windows.keys().next().value!)
    }
    return found
  }

  get length(): number {
    return this.opened?.length ?? 0
  }

  seek(step: number): void {
    this.step = Math.max(0, Math.min(this.length - 1, Math.round(step)))
  }

  get cameras(): Channel[] {
    return this.opened?.channels.filter((one) => one.show === 'camera') ?? []
  }

  /** The channels of values, actions first, each with its predictions. */
  get plots(): Plot[] {
    const channels = this.opened?.channels ?? []
    const order = ['action', 'series', 'signal']
    return channels
      .filter((one) => one.show === 'signal' && (one.about === null || one.lane === 'residual') && !one.block.startsWith('time/'))
      .sort((a, b) => (order.indexOf(a.lane) + 4) % 4 - ((order.indexOf(b.lane) + 4) % 4))
      .map((channel) => ({ channel, predictions: this.#predictionsOf(channel) }))
  }

  #predictionsOf(channel: Channel): Plot['predictions'] {
    const about = (this.opened?.channels ?? []).filter((one) => one.about?.block === channel.block && one.show === 'signal')
    return about
      .filter((one) => one.lane === 'omen')
      .map((one) => {
        const found = about.find((other) => other.lane === 'uncert' && other.about!.model === one.about!.model)
        return { model: one.about!.model, block: one.block, uncertainty: found ? { block: found.block, type: found.about!.type } : null }
      })
  }

  close(): void {
    this.#worker.terminate()
    this.isPlaying = false
  }
}

/** Return the row of a window that a step shows: the last one that is not later. */
export function rowAt(values: Values, step: number): number {
  let [low, high] = [0, values.at.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (values.at[middle]! <= step + 1e-6) low = middle + 1
    else high = middle
  }
  return low - 1
}

/** Return how far a prediction may be off: a deviation as it is, the root of a variance. */
export function spread(value: number, type: string): number {
  return type.startsWith('var') ? Math.sqrt(Math.max(0, value)) : Math.abs(value)
}

export function toProblem(error: unknown): Problem {
  return error instanceof ProblemError ? error.problem : { status: 0, code: 'page', detail: String(error) }
}

function fileUrl(ds: DatasetState, detail: Schemas['EpisodeDetailView'], chunk: number): string {
  const query = new URLSearchParams({ ref: detail.version, set: detail.set, id: detail.episode.id, chunk: String(chunk) })
  return `${window.location.origin}/api/v1/datasets/${encodePath(ds.id)}/episode/file?${query.toString()}`
}
