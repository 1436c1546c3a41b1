// The samples that the user chose: some of them, or all that match.

import { SvelteMap } from 'svelte/reactivity'
import type { Sample } from '../api/client'

export class Selection {
  readonly picked = new SvelteMap<number, { id: number; path: string | undefined }>()
  isAll = $state(false)

  has(sample: Sample): boolean {
    return this.isAll || this.picked.has(sample.row)
  }

  toggle(sample: Sample, path: string | undefined): void {
    if (this.isAll) this.clear()
    if (!this.picked.delete(sample.row)) this.picked.set(sample.row, { id: sample.id, path })
  }

  all(): void {
    this.picked.clear()
    this.isAll = true
  }

  clear(): void {
    this.picked.clear()
    this.isAll = false
  }

  count(total: number): number {
    return this.isAll ? total : this.picked.size
  }
}
