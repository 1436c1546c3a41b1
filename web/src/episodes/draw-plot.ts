// Draws a window of a channel: values as lines, predictions dashed, uncertainty as a band around them.

import type { Values } from './messages'
import { spread } from './player.svelte'

/** Distinct in both palettes, and for most people who see few colours. */
export const LINE_COLORS = ['#3b78e7', '#e07b16', '#22a06b', '#c2467f', '#8a63d2', '#0f9bb0', '#b3861b', '#6b7a90']

export interface Lines {
  values: Values
  predictions: { values: Values; uncertainty: Values | null; type: string }[]
}

export interface Range {
  low: number
  high: number
}

/** Return the range of all values that are drawn. Bands may leave it. */
export function rangeOf({ values, predictions }: Lines): Range {
  let [low, high] = [Infinity, -Infinity]
  for (const { data } of [values, ...predictions.map((one) => one.values)]) {
    for (const value of data) {
      if (Number.isFinite(value)) {
        low = Math.min(low, value)
        high = Math.max(high, value)
      }
    }
  }
  if (low > high) return { low: 0, high: 1 }
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1
  return { low: low - room, high: high + room }
}

export function drawPlot(canvas: HTMLCanvasElement, lines: Lines, start: number, stop: number, range: Range): void {
  const ratio = window.devicePixelRatio || 1
  const [width, height] = [canvas.clientWidth, canvas.clientHeight]
  canvas.width = Math.round(width * ratio)
  canvas.height = Math.round(height * ratio)
  const context = canvas.getContext('2d')!
  context.scale(ratio, ratio)
  const span = Math.max(1, stop - start - 1)
  const x = (step: number): number => ((step - start) / span) * width
  const y = (value: number): number => height - ((value - range.low) / (range.high - range.low)) * height
  drawZero(context, canvas, width, y(0), height)
  for (let part = 0; part < lines.values.width; part++) {
    const color = LINE_COLORS[part % LINE_COLORS.length]!
    for (const { values, uncertainty, type } of lines.predictions) {
      if (part >= values.width) continue
      if (uncertainty) drawBand(context, values, uncertainty, type, part, color, x, y)
      context.setLineDash([5, 3])
      drawLine(context, values, part, color, 1.2, x, y)
      context.setLineDash([])
    }
    drawLine(context, lines.values, part, color, 1.6, x, y)
  }
}

function drawZero(context: CanvasRenderingContext2D, canvas: HTMLCanvasElement, width: number, at: number, height: number): void {
  if (at < 0 || at > height) return
  context.strokeStyle = getComputedStyle(canvas).borderBottomColor
  context.lineWidth = 1
  context.beginPath()
  context.moveTo(0, Math.round(at) + 0.5)
  context.lineTo(width, Math.round(at) + 0.5)
  context.stroke()
}

type Scale = (value: number) => number

function drawLine(context: CanvasRenderingContext2D, values: Values, part: number, color: string, weight: number, x: Scale, y: Scale): void {
  context.strokeStyle = color
  context.lineWidth = weight
  context.lineJoin = 'round'
  context.beginPath()
  let isDown = false
  for (let row = 0; row < values.at.length; row++) {
    const value = values.data[row * values.width + part]!
    if (!Number.isFinite(value)) isDown = false
    else if (isDown) context.lineTo(x(values.at[row]!), y(value))
    else {
      context.moveTo(x(values.at[row]!), y(value))
      isDown = true
    }
  }
  context.stroke()
}

function drawBand(context: CanvasRenderingContext2D, values: Values, around: Values, type: string, part: number, color: string, x: Scale, y: Scale): void {
  const rows = Math.min(values.at.length, around.at.length)
  const own = Math.min(part, around.width - 1)
  context.fillStyle = color
  context.globalAlpha = 0.16
  context.beginPath()
  for (let row = 0; row < rows; row++) {
    const far = spread(around.data[row * around.width + own]!, type)
    context.lineTo(x(values.at[row]!), y(values.data[row * values.width + part]! + far))
  }
  for (let row = rows - 1; row >= 0; row--) {
    const far = spread(around.data[row * around.width + own]!, type)
    context.lineTo(x(values.at[row]!), y(values.data[row * values.width + part]! - far))
  }
  context.fill()
  context.globalAlpha = 1
}
