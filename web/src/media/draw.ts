// Annotations on a canvas: boxes, polygons, masks and keypoints, in the colours of their classes.

import type { Annotation, RunLength } from './annotations.svelte'
import { classColor, classHsl } from './colors.svelte'

export interface Frame {
  /** Pixels of the canvas for one pixel of the image, and where the image begins. */
  scale: number
  left: number
  top: number
}

export interface Style {
  lineWidth: number
  /** Colours other than that of the class, such as those of a difference. */
  color?: (annotation: Annotation) => string
  /** The one that stands out. */
  chosen?: string | undefined
  names?: boolean
}

/** Draw all annotations. What is outside of the canvas is not shown. */
export function drawAnnotations(context: CanvasRenderingContext2D, list: Annotation[], frame: Frame, style: Style): void {
  for (const annotation of list) {
    const color = style.color?.(annotation) ?? classColor(annotation.class_name)
    context.globalAlpha = style.chosen && style.chosen !== annotation.id ? 0.25 : 1
    context.strokeStyle = color
    context.fillStyle = color
    context.lineWidth = style.chosen === annotation.id ? style.lineWidth * 1.8 : style.lineWidth
    drawOne(context, annotation, frame)
    if (style.names) drawName(context, annotation, frame, color)
  }
  context.globalAlpha = 1
}

function drawOne(context: CanvasRenderingContext2D, annotation: Annotation, frame: Frame): void {
  if (annotation.type === 'box' && annotation.bbox) drawBox(context, annotation.bbox, annotation.rotation ?? 0, frame)
  else if (annotation.type === 'polygon') drawRings(context, annotation.segmentation as number[][], frame)
  else if (annotation.type === 'mask') drawMask(context, annotation, frame)
  else if (annotation.keypoints) drawPoints(context, annotation.keypoints, frame)
}

function drawBox(context: CanvasRenderingContext2D, [x, y, width, height]: number[], rotation: number, frame: Frame): void {
  context.save()
  context.translate(frame.left + x! * frame.scale, frame.top + y! * frame.scale)
  context.rotate((rotation * Math.PI) / 180)
  context.strokeRect(0, 0, width! * frame.scale, height! * frame.scale)
  context.restore()
}

function drawRings(context: CanvasRenderingContext2D, rings: number[][], frame: Frame): void {
  context.beginPath()
  for (const ring of rings) {
    for (let at = 0; at + 1 < ring.length; at += 2) {
      const x = frame.left + ring[at]! * frame.scale
      const y = frame.top + ring[at + 1]! * frame.scale
      if (at) context.lineTo(x, y)
      else context.moveTo(x, y)
    }
    context.closePath()
  }
  const alpha = context.globalAlpha
  context.globalAlpha = alpha * 0.14
  context.fill('evenodd')
  context.globalAlpha = alpha
  context.stroke()
}

function drawPoints(context: CanvasRenderingContext2D, points: number[], frame: Frame): void {
  const radius = context.lineWidth * 1.6
  for (let at = 0; at + 2 < points.length; at += 3) {
    if (!points[at + 2]) continue
    context.beginPath()
    context.arc(frame.left + points[at]! * frame.scale, frame.top + points[at + 1]! * frame.scale, radius, 0, 2 * Math.PI)
    context.fill()
  }
}

const masks = new WeakMap<Annotation, { color: string; picture: HTMLCanvasElement }>()

function drawMask(context: CanvasRenderingContext2D, annotation: Annotation, frame: Frame): void {
  const { size } = annotation.segmentation as RunLength
  const color = classColor(annotation.class_name)
  let painted = masks.get(annotation)
  if (painted?.color !== color) {
    painted = { color, picture: paintMask(annotation) }
    masks.set(annotation, painted)
  }
  context.drawImage(painted.picture, frame.left, frame.top, size[1] * frame.scale, size[0] * frame.scale)
}

/** Decode runs of zeros and ones, which go down the columns, to a transparent picture of the class's colour. */
function paintMask(annotation: Annotation): HTMLCanvasElement {
  const { size, counts } = annotation.segmentation as RunLength
  const [height, width] = size
  const picture = document.createElement('canvas')
  picture.width = width
  picture.height = height
  const context = picture.getContext('2d')!
  const pixels = context.createImageData(width, height)
  const [red, green, blue] = rgbOf(classHsl(annotation.class_name))
  let at = 0
  counts.forEach((length, run) => {
    if (run % 2) {
      for (let pixel = at; pixel < at + length; pixel++) {
        const place = ((pixel % height) * width + Math.floor(pixel / height)) * 4
        pixels.data[place] = red
        pixels.data[place + 1] = green
        pixels.data[place + 2] = blue
        pixels.data[place + 3] = 140
      }
    }
    at += length
  })
  context.putImageData(pixels, 0, 0)
  return picture
}

function rgbOf([hue, saturation, lightness]: [number, number, number]): [number, number, number] {
  const reach = (saturation / 100) * Math.min(lightness / 100, 1 - lightness / 100)
  const part = (shift: number) => {
    const place = (shift + hue / 30) % 12
    return Math.round(255 * (lightness / 100 - reach * Math.max(-1, Math.min(place - 3, 9 - place, 1))))
  }
  return [part(0), part(8), part(4)]
}

function drawName(context: CanvasRenderingContext2D, annotation: Annotation, frame: Frame, color: string): void {
  const corner = cornerOf(annotation)
  if (!corner) return
  const x = frame.left + corner[0] * frame.scale
  const y = frame.top + corner[1] * frame.scale
  const ratio = window.devicePixelRatio
  context.font = `600 ${11 * ratio}px Inter, system-ui, sans-serif`
  const width = context.measureText(annotation.class_name).width + 8 * ratio
  context.fillStyle = color
  context.fillRect(x, Math.max(0, y - 15 * ratio), width, 15 * ratio)
  context.fillStyle = '#0b0d12'
  context.fillText(annotation.class_name, x + 4 * ratio, Math.max(0, y - 15 * ratio) + 11 * ratio)
}

/** Return the top left corner of an annotation, in pixels of the image. */
function cornerOf(annotation: Annotation): [number, number] | undefined {
  if (annotation.bbox) return [annotation.bbox[0], annotation.bbox[1]]
  if (annotation.type === 'mask') return cornerOfMask(annotation.segmentation as RunLength)
  const list = annotation.type === 'polygon' ? (annotation.segmentation as number[][]).flat() : (annotation.keypoints ?? [])
  const step = annotation.type === 'polygon' ? 2 : 3
  const xs = list.filter((_, at) => at % step === 0)
  const ys = list.filter((_, at) => at % step === 1)
  return xs.length ? [Math.min(...xs), Math.min(...ys)] : undefined
}

function cornerOfMask({ size, counts }: RunLength): [number, number] | undefined {
  let at = 0
  let left = Infinity
  let top = Infinity
  counts.forEach((length, run) => {
    if (run % 2 && length) {
      left = Math.min(left, Math.floor(at / size[0]))
      top = Math.min(top, at % size[0])
    }
    at += length
  })
  return left === Infinity ? undefined : [left, top]
}
