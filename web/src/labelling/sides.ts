// The three sides of a merge as annotations that can be drawn, each in the colour of what becomes of it.

import type { Schemas } from '../api/client'
import type { Annotation } from '../media/annotations.svelte'

export type Preview = Schemas['MergePreviewView']
export type Outcome = 'added' | 'removed' | 'conflict' | 'kept'

export const OUTCOMES: { name: Outcome; title: string; color: string }[] = [
  { name: 'added', title: 'added', color: '#3ecf7a' },
  { name: 'removed', title: 'removed', color: '#ff6b5e' },
  { name: 'conflict', title: 'in conflict', color: '#ffab4a' },
  { name: 'kept', title: 'stays', color: '#aab4c6' },
]

export interface Side {
  title: string
  list: Annotation[]
  colors: Map<string, string>
  /** The ids of objects that stay as they are. */
  kept: Set<string>
}

type Held = Record<string, unknown>

/** Return base, HEAD and annotator, with a colour for each object. */
export function sidesOf(preview: Preview): Side[] {
  const inConflict = (side: 'base' | 'head' | 'returned') => new Set(preview.conflicts.flatMap((one) => (one[side] ? [keyOf(one[side])] : [])))
  const added = new Set(preview.added.map(keyOf))
  const removed = new Set(preview.removed.map(keyOf))
  return [
    side('seen by the annotator', preview.base, (key) => (inConflict('base').has(key) ? 'conflict' : 'kept')),
    side('HEAD now', preview.head, (key) => (inConflict('head').has(key) ? 'conflict' : removed.has(key) ? 'removed' : 'kept')),
    side(`drawn by ${preview.item.annotator || 'the annotator'}`, preview.returned, (key) => (inConflict('returned').has(key) ? 'conflict' : added.has(key) ? 'added' : 'kept')),
  ]
}

/** Return one object as what happens to it. */
export function describe(held: Held | null): string {
  if (!held) return 'nothing: it is not there'
  const box = held['bbox'] as number[] | undefined
  const place = box ? ` at ${box.slice(0, 2).map(round).join(', ')}, ${box.slice(2).map(round).join(' × ')}` : ''
  return `${String(held['class_name'])}, a ${String(held['type'])}${place}`
}

function side(title: string, objects: Held[], outcome: (key: string) => Outcome): Side {
  const list = objects.map((held, at) => ({ ...held, id: String(at) }) as unknown as Annotation)
  const outcomes = objects.map((held) => outcome(keyOf(held)))
  const colors = new Map(outcomes.map((name, at) => [String(at), OUTCOMES.find((one) => one.name === name)!.color]))
  return { title, list, colors, kept: new Set(outcomes.flatMap((name, at) => (name === 'kept' ? [String(at)] : []))) }
}

function keyOf(held: Held): string {
  return JSON.stringify(held)
}

function round(value: number): string {
  return String(Math.round(value * 10) / 10)
}
