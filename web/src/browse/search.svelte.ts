// Searches: by words, by a row that is there, or by an example image. They are part of the address, and their hits are
// rows like those of a list, best first.

import { api, done, type Column, type TableSchema } from '../api/client'
import type { DatasetState } from '../state/dataset.svelte'
import { Rows, type Question, type ScoredSample } from './rows.svelte'

export const MOST_HITS = 500
/** Scores from which two rows count as near duplicates, as in `Dataset.duplicates`. */
export const SAME_VECTOR = 0.97
export const SAME_IMAGE = 0.9

/** What rows shall be near to: a row, or the appearance of an image that was sent. */
export interface Near {
  column: string
  row?: number
  appearance?: string
}

export interface Search {
  text: string
  textColumn: string | undefined
  near: Near | undefined
}

/** Read `near=column:row:12` or `near=column:like:9f…`. */
export function parseNear(text: string | null): Near | undefined {
  const match = /^(.+):(?:row:(\d{1,15})|like:([0-9a-f]{16}))$/.exec(text ?? '')
  if (!match) return undefined
  return match[2] === undefined ? { column: match[1]!, appearance: match[3]! } : { column: match[1]!, row: Number(match[2]) }
}

export function writeNear(near: Near): string {
  return near.row === undefined ? `${near.column}:like:${near.appearance}` : `${near.column}:row:${near.row}`
}

export function isText(column: Column): boolean {
  return /^(string|large_string|string_view|dictionary<values=(large_)?string.*)$/.test(column.type)
}

export function isVector(column: Column): boolean {
  return /^fixed_size_list<.*(halffloat|float|double)( not null)?>\[\d+\]$/.test(column.type)
}

const NAMES = ['hash', 'id', 'image', 'author', 'time', 'media_type']

/** Return the columns in which words can be looked for, the likeliest first. */
export function textColumns(table: TableSchema): string[] {
  const rank = (column: Column): number => (/text|caption|title|descr|note|prompt|comment/i.test(column.name) ? 0 : column.refers_to ? 2 : 1)
  return table.columns
    .filter((column) => isText(column) && !NAMES.includes(column.name))
    .sort((a, b) => rank(a) - rank(b))
    .map((column) => column.name)
}

/** Return the columns that say which rows are alike: vectors, and images by their appearance. */
export function likeColumns(table: TableSchema): Column[] {
  return [...table.columns.filter(isVector), ...table.columns.filter((column) => column.refers_to === 'image')]
}

/** Return a score in as many digits as tell hits apart. */
export function score(value: number): string {
  return Math.abs(value) < 0.1 ? value.toPrecision(2) : value.toFixed(3)
}

/** The hits of a search. The first question fetches all of them. */
export class Hits extends Rows {
  /** The rows that were searched. */
  searched = $state<number>()
  #found: Promise<{ samples: ScoredSample[]; total: number }> | undefined

  constructor(
    ds: DatasetState,
    question: Question,
    readonly search: Search,
  ) {
    super(ds, question)
  }

  override async ask(offset: number, limit: number, signal?: AbortSignal, columns = this.question.columns) {
    this.#found ??= this.#fetch()
    const hits = await this.#found.catch((error: unknown) => {
      this.#found = undefined
      throw error
    })
    const samples = hits.samples.slice(offset, offset + limit)
    if (columns === this.question.columns || !samples[0]) return { samples, total: hits.total }
    // Other columns, for the opened sample.
    const query = { ref: this.ds.digest, table: this.question.table, columns, subset: [`row:${samples[0].row}`], limit: 1 }
    const params = { path: this.ds.path, query }
    const found = await done(api.GET('/api/v1/datasets/{workspace}/{name}/samples', { params, ...(signal && { signal }) }))
    return { samples: found.samples.map((sample) => ({ ...sample, score: samples[0]!.score! })), total: hits.total }
  }

  async #fetch() {
    const { table, filter, className, subsets, columns } = this.question
    const { text, textColumn, near } = this.search
    const body = {
      ref: this.ds.digest,
      table,
      k: MOST_HITS,
      metric: 'cosine' as const,
      exact: false,
      subsets,
      ...(filter && { filter }),
      ...(className && { class_name: className }),
      ...(columns && { columns }),
      ...(text && { text, ...(textColumn && { column: textColumn }) }),
      ...(near && { near }),
    }
    const found = await done(api.POST('/api/v1/datasets/{workspace}/{name}/search', { params: { path: this.ds.path }, body }))
    this.searched = found.searched
    return { samples: found.hits, total: found.hits.length }
  }
}

/** Send an example image, and return its appearance. */
export async function appearanceOf(ds: DatasetState, table: string, column: string, file: Blob): Promise<string> {
  const image = await base64(file)
  const body = { ref: ds.digest, table, k: 1, metric: 'cosine' as const, exact: false, subsets: [], near: { column, image }, filter: 'false', columns: [] }
  const found = await done(api.POST('/api/v1/datasets/{workspace}/{name}/search', { params: { path: ds.path }, body }))
  return found.appearance ?? ''
}

function base64(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader()
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ''))
    reader.onerror = () => reject(new Error('The file cannot be read.'))
    reader.readAsDataURL(file)
  })
}
