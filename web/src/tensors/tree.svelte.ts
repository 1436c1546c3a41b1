// The tree of the names of a set of tensors, a level at a time: only levels that are open are asked for.

import { api, done, problemOf, type Problem, type Schemas } from '../api/client'
import type { DatasetState } from '../state/dataset.svelte'

export type Tensor = Schemas['TensorView']
export type Node = Schemas['TensorNodeView']

export interface Line {
  node: Node
  depth: number
  isOpen: boolean
}

export class TensorTree {
  /** The level of the root, with counts of the whole set. */
  root = $state.raw<Schemas['TensorTree']>()
  problem = $state.raw<Problem>()
  tick = $state(0)
  #levels = new Map<string, Node[]>()
  #asked = new Set<string>()

  constructor(
    readonly ds: DatasetState,
    readonly set: string | undefined,
  ) {}

  /** Return the lines in view of the open nodes, and ask for levels that are not here. */
  lines(open: ReadonlySet<string>): Line[] {
    const found: Line[] = []
    if (this.tick < 0) return found
    const walk = (path: string, depth: number): void => {
      for (const node of this.#levels.get(path) ?? []) {
        const isOpen = node.is_group && open.has(node.path)
        found.push({ node, depth, isOpen })
        if (isOpen) walk(node.path, depth + 1)
      }
    }
    walk('', 0)
    return found
  }

  /** Ask for a level, all of its pages. */
  async need(prefix: string): Promise<void> {
    if (this.#asked.has(prefix)) return
    this.#asked.add(prefix)
    try {
      const nodes: Node[] = []
      let cursor: string | null = null
      do {
        const query: Record<string, string | undefined> = { ref: this.ds.digest, set: this.set, prefix, cursor: cursor ?? undefined }
        const level: Schemas['TensorTree'] = await done(api.GET('/api/v1/datasets/{workspace}/{name}/tensors/tree', { params: { path: this.ds.path, query } }))
        if (!prefix) this.root ??= level
        nodes.push(...level.nodes)
        cursor = level.next_cursor
        this.#levels.set(prefix, [...nodes])
        this.tick += 1
      } while (cursor)
    } catch (error) {
      this.#asked.delete(prefix)
      this.problem = problemOf(error)
    }
  }
}

/** Return a shape as people write it. */
export function shape(tensor: Tensor): string {
  return tensor.shape.length ? tensor.shape.join(' × ') : 'scalar'
}
