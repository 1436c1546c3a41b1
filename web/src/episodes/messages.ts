// What the player and its worker say to each other.

import type { Problem } from '../api/client'

/** A block of an episode, and how it is shown. */
export interface Channel {
  block: string
  lane: string
  id: string
  dtype: string
  shape: number[]
  rows: number
  rateHz: number | null
  encoding: string | null
  show: 'camera' | 'signal' | 'none'
  /** Of a prediction or an uncertainty: the block that it is about, the model, and the kind of uncertainty. */
  about: { block: string; model: string; type: string } | null
}

export interface Opened {
  id: string
  length: number
  /** Steps per second; null for episodes with a timestamp for each step. */
  hz: number | null
  channels: Channel[]
}

/** Values of a channel over some steps. Row `r` is at step `at[r]`, and has `width` numbers. */
export interface Values {
  at: Float64Array
  width: number
  data: Float64Array
}

export type Ask =
  | { kind: 'open'; urls: string[] }
  | { kind: 'values'; block: string; start: number; stop: number; width: number }
  | { kind: 'times'; start: number; stop: number }
  | { kind: 'frame'; block: string; step: number; isPlaying: boolean }

export interface Answers {
  open: Opened
  values: Values
  times: Float64Array
  frame: ImageBitmap
}

export type Question = Ask & { number: number }
export type Answer = { number: number; value: unknown } | { number: number; problem: Problem }
