// Counts of values for the facets: of all rows once, and of the rows that the filter keeps. A few columns at a time, so
// that images do not wait for them.

import { api, done, isAbort, problemOf, type Column, type ColumnStatistics, type TableSchema } from '../api/client'
import type { DatasetState } from '../state/dataset.svelte'
import { notices } from '../state/session.svelte'

const AT_A_TIME = 2
const HIDDEN = ['path', 'hash', 'id', 'image', 'time']

/** Which rows are kept: by a filter, by a class and by subsets. */
export interface Kept {
  filter: string
  className: string
  subsets: string[]
}

export const ALL: Kept = { filter: '', className: '', subsets: [] }

export function isNarrow(kept: Kept): boolean {
  return Boolean(kept.filter || kept.className || kept.subsets.length)
}

/** Return the columns that have a facet: plain values that are not names of single rows. */
export function facetColumns(table: TableSchema): Column[] {
  return table.columns.filter((column) => isPlain(column.type) && !column.refers_to && !HIDDEN.includes(column.name))
}

export function isNumeric(type: string): boolean {
  return /^(u?int\d+|float|double)$/.test(type)
}

function isPlain(type: string): boolean {
  return isNumeric(type) || /^(bool|string|large_string|string_view|dictionary<values=(large_)?string.*)$/.test(type)
}

export class FacetCounts {
  all = $state.raw<Record<string, ColumnStatistics>>({})
  kept = $state.raw<Record<string, ColumnStatistics>>({})
  #abort = new AbortController()

  constructor(
    readonly ds: DatasetState,
    readonly table: string,
  ) {}

  async loadAll(columns: string[]): Promise<void> {
    await this.#each(columns, new AbortController().signal, ALL, (found) => (this.all = { ...this.all, [found.column]: found }))
  }

  /** Count again, for another filter. Until the new counts are here, the old ones stay. */
  async loadKept(columns: string[], kept: Kept): Promise<void> {
    this.#abort.abort()
    const abort = new AbortController()
    this.#abort = abort
    if (!isNarrow(kept)) {
      this.kept = {}
      return
    }
    await this.#each(columns, abort.signal, kept, (found) => (this.kept = { ...this.kept, [found.column]: found }))
  }

  stop(): void {
    this.#abort.abort()
  }

  async #each(columns: string[], signal: AbortSignal, { filter, className, subsets }: Kept, take: (found: ColumnStatistics) => void): Promise<void> {
    const left = [...columns]
    const work = async (): Promise<void> => {
      for (let column = left.shift(); column !== undefined && !signal.aborted; column = left.shift()) {
        const query = {
          ref: this.ds.digest,
          table: this.table,
          columns: [column],
          ...(filter && { filter }),
          ...(className && { class_name: className }),
          ...(subsets.length && { subset: subsets }),
        }
        const answer = await done(api.GET('/api/v1/datasets/{workspace}/{name}/stats', { params: { path: this.ds.path, query }, signal }))
        if (!signal.aborted && answer.columns[0]) take(answer.columns[0])
      }
    }
    try {
      await Promise.all(Array.from({ length: AT_A_TIME }, work))
    } catch (error) {
      if (!isAbort(error)) notices.show(`Facets: ${problemOf(error).detail}`, { isError: true })
    }
  }
}
