// Rows of one question, a page at a time: only pages near the view are asked for, and few are kept.

import { api, done, isAbort, problemOf, type Problem, type Sample } from '../api/client'
import type { DatasetState } from '../state/dataset.svelte'

const PAGE_ROWS = 100
const KEPT_PAGES = 40
const WAIT_MS = 30

export interface Question {
  table: string
  filter: string
  className: string
  subsets: string[]
  columns: string[] | undefined
}

/** A row, with its score if a search found it. */
export type ScoredSample = Sample & { score?: number }

/** The rows that a filter keeps, by their place among them. */
export class Rows {
  total = $state<number>()
  problem = $state.raw<Problem>()
  /** Counts pages that came, so that views read their rows again. */
  tick = $state(0)
  #pages = new Map<number, ScoredSample[]>()
  #asked = new Map<number, AbortController>()
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(
    readonly ds: DatasetState,
    readonly question: Question,
  ) {}

  /** Return a row that is here. Reading `tick` makes it reactive. */
  at(index: number): ScoredSample | undefined {
    return this.tick >= 0 ? this.#pages.get(Math.floor(index / PAGE_ROWS))?.[index % PAGE_ROWS] : undefined
  }

  /** Ask for the first page, which also counts the rows. */
  start(): void {
    void this.#fetch(0)
  }

  /** Ask for the rows that come into view. While the view moves on quickly, nothing is asked. */
  need(first: number, last: number): void {
    const from = Math.floor(Math.max(0, first) / PAGE_ROWS)
    const to = Math.floor(Math.max(0, last) / PAGE_ROWS)
    for (const [page, abort] of this.#asked) {
      if (page < from - 1 || page > to + 1) abort.abort()
    }
    clearTimeout(this.#timer)
    const missing = Array.from({ length: to - from + 1 }, (_, at) => from + at).filter((page) => !this.#pages.has(page))
    if (!missing.length) return
    this.#timer = setTimeout(() => missing.forEach((page) => void this.#fetch(page)), WAIT_MS)
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
      const samples: ScoredSample[] = []
      for (;;) {
        const answer = await this.ask(page * PAGE_ROWS + samples.length, PAGE_ROWS - samples.length, abort.signal)
        samples.push(...answer.samples)
        this.total = answer.total
        // A page ends early if its rows are large.
        if (!answer.samples.length || samples.length === PAGE_ROWS || page * PAGE_ROWS + samples.length >= answer.total) break
      }
      this.#keep(page, samples)
      this.problem = undefined
    } catch (error) {
      if (!isAbort(error)) this.problem = problemOf(error)
    } finally {
      this.#asked.delete(page)
    }
  }

  #keep(page: number, samples: ScoredSample[]): void {
    this.#pages.set(page, samples)
    if (this.#pages.size > KEPT_PAGES) {
      const farthest = [...this.#pages.keys()].reduce((a, b) => (Math.abs(a - page) >= Math.abs(b - page) ? a : b))
      this.#pages.delete(farthest)
    }
    this.tick += 1
  }

  ask(offset: number, limit: number, signal?: AbortSignal, columns = this.question.columns): Promise<{ samples: ScoredSample[]; total: number }> {
    const { table, filter, className, subsets } = this.question
    const query = {
      ref: this.ds.digest,
      table,
      offset,
      limit,
      ...(filter && { filter }),
      ...(className && { class_name: className }),
      ...(subsets.length && { subset: subsets }),
      ...(columns && { columns }),
    }
    return done(api.GET('/api/v1/datasets/{workspace}/{name}/samples', { params: { path: this.ds.path, query }, ...(signal && { signal }) }))
  }
}
