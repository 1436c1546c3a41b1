// The episodes of one question, a page at a time: only pages near the view are asked for.

import { api, done, isAbort, problemOf, type Problem, type Schemas } from '../api/client'
import type { DatasetState } from '../state/dataset.svelte'

export type Episode = Schemas['EpisodeView']

const PAGE = 100
const KEPT_PAGES = 30
const WAIT_MS = 30

export interface Question {
  set: string
  filter: string
  sort: string
  order: 'asc' | 'desc'
}

export class EpisodeRows {
  total = $state<number>()
  fields = $state.raw<string[]>([])
  problem = $state.raw<Problem>()
  tick = $state(0)
  #pages = new Map<number, Episode[]>()
  #asked = new Map<number, AbortController>()
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(
    readonly ds: DatasetState,
    readonly question: Question,
  ) {}

  at(index: number): Episode | undefined {
    return this.tick >= 0 ? this.#pages.get(Math.floor(index / PAGE))?.[index % PAGE] : undefined
  }

  start(): void {
    void this.#fetch(0)
  }

  need(first: number, last: number): void {
    const [from, to] = [Math.floor(Math.max(0, first) / PAGE), Math.floor(Math.max(0, last) / PAGE)]
    for (const [page, abort] of this.#asked) if (page < from - 1 || page > to + 1) abort.abort()
    clearTimeout(this.#timer)
    const missing = Array.from({ length: to - from + 1 }, (_, at) => from + at).filter((page) => !this.#pages.has(page))
    if (missing.length) this.#timer = setTimeout(() => missing.forEach((page) => void this.#fetch(page)), WAIT_MS)
  }

  stop(): void {
    clearTimeout(this.#timer)
    for (const abort of this.#asked.values()) abort.abort()
  }

  async #fetch(page: number): Promise<void> {
    if (this.#asked.has(page) || this.#pages.has(page)) return
    const abort = new AbortController()
    this.#asked.set(page, abort)
    try {
      const { set, filter, sort, order } = this.question
      const query = { ref: this.ds.digest, set, sort, order, limit: PAGE, offset: page * PAGE, ...(filter && { filter }) }
      const found = await done(api.GET('/api/v1/datasets/{workspace}/{name}/episodes', { params: { path: this.ds.path, query }, signal: abort.signal }))
      this.#pages.set(page, found.episodes)
      if (this.#pages.size > KEPT_PAGES) {
        this.#pages.delete([...this.#pages.keys()].reduce((a, b) => (Math.abs(a - page) >= Math.abs(b - page) ? a : b)))
      }
      this.total = found.total
      this.fields = found.fields
      this.problem = undefined
      this.tick += 1
    } catch (error) {
      if (!isAbort(error)) this.problem = problemOf(error)
    } finally {
      this.#asked.delete(page)
    }
  }
}

/** Return a duration as people write it. */
export function duration(seconds: number | null): string {
  if (seconds === null) return '–'
  if (seconds < 60) return `${seconds.toFixed(1)} s`
  const minutes = Math.floor(seconds / 60)
  return minutes < 60 ? `${minutes}:${String(Math.floor(seconds % 60)).padStart(2, '0')}` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}
