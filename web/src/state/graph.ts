// The lanes of a commit graph: where each commit is drawn, and the lines to its parents.

import type { Commit } from '../api/client'

export interface Placed {
  commit: Commit
  lane: number
  /** Lines that leave this row downwards: from a lane, to a lane of the next row. */
  lines: { from: number; to: number }[]
}

/** Place commits, newest first, each above its parents. */
export function layOut(commits: Commit[]): { rows: Placed[]; lanes: number } {
  const order = sorted(commits)
  const known = new Set(order.map((one) => one.commit))
  // Each lane waits for the commit that it leads to.
  let waiting: (string | undefined)[] = []
  let most = 1
  const rows = order.map((commit) => {
    let lane = waiting.indexOf(commit.commit)
    if (lane < 0) {
      lane = waiting.indexOf(undefined)
      if (lane < 0) lane = waiting.length
    }
    const before = [...waiting]
    const next = waiting.map((one) => (one === commit.commit ? undefined : one))
    const lines: Placed['lines'] = []
    for (const [at, parent] of commit.parents.filter((one) => known.has(one)).entries()) {
      let to = next.indexOf(parent)
      if (to < 0) {
        to = at === 0 ? lane : next.indexOf(undefined)
        if (to < 0) to = next.length
        next[to] = parent
      }
      lines.push({ from: lane, to })
    }
    before.forEach((one, at) => {
      if (one !== undefined && one !== commit.commit && next[at] === one) lines.push({ from: at, to: at })
    })
    waiting = next
    most = Math.max(most, next.length, lane + 1)
    return { commit, lane, lines }
  })
  return { rows, lanes: most }
}

/** Order by time, but never a parent above its child. */
function sorted(commits: Commit[]): Commit[] {
  const byId = new Map(commits.map((one) => [one.commit, one]))
  const children = new Map<string, number>()
  for (const one of byId.values()) for (const parent of one.parents) children.set(parent, (children.get(parent) ?? 0) + 1)
  const ready = [...byId.values()].filter((one) => !children.get(one.commit))
  const found: Commit[] = []
  while (ready.length) {
    ready.sort((a, b) => a.time.localeCompare(b.time))
    const next = ready.pop()!
    found.push(next)
    for (const parent of next.parents) {
      const left = (children.get(parent) ?? 1) - 1
      children.set(parent, left)
      const commit = byId.get(parent)
      if (left === 0 && commit) ready.push(commit)
    }
  }
  return found
}
