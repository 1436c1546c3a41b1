// A selection as the service takes it: the paths that were chosen, or the condition that all of them match.

import type { Selection } from './selection.svelte'

export type Chosen = { paths: string[] } | { ref: string; filter?: string; class_name?: string }

export const MOST_PATHS = 10_000

export function chosenImages(selection: Selection, digest: string, filter: string, className: string): Chosen {
  if (!selection.isAll) return { paths: [...selection.picked.values()].flatMap((one) => (one.path === undefined ? [] : [one.path])) }
  return { ref: digest, ...(filter && { filter }), ...(className && { class_name: className }) }
}
