// Points of a map: where they are on the screen, which is under the pointer, and which are inside a polygon.
//
// Points are drawn into the pixels of a canvas by a loop. That takes a few milliseconds for a million, on every machine,
// while WebGL without a graphics card takes more than a second.

export const EDGE = 65_535
const BUCKETS = 256
const MOST_CORNERS = 256

export interface View {
  /** Pixels for each unit of the map. */
  scale: number
  /** Where the map's origin, its lower left corner, is on the screen. */
  left: number
  bottom: number
}

export class Points {
  readonly count: number
  /** Points in the order of their buckets, and where each bucket begins. */
  #order: Uint32Array | undefined
  #starts = new Uint32Array(BUCKETS * BUCKETS + 1)

  constructor(
    readonly xy: Uint16Array,
    readonly rows: Uint32Array | undefined,
  ) {
    this.count = xy.length / 2
  }

  rowOf(point: number): number {
    return this.rows ? this.rows[point]! : point
  }

  /** Draw points into pixels. A colour of 0 leaves a point out; points outside of `mask` have their dim colour. */
  draw(pixels: Uint32Array, width: number, height: number, view: View, size: number, codes: Uint8Array | undefined, colors: Uint32Array, mask?: Uint8Array, dim?: Uint32Array): void {
    const { xy, count } = this
    const { scale } = view
    const half = size >> 1
    const left = view.left - half
    const top = view.bottom - half
    const right = width - size
    const bottom = height - size
    for (let point = 0, at = 0; point < count; point += 1, at += 2) {
      const x = Math.floor(xy[at]! * scale + left)
      const y = Math.floor(top - xy[at + 1]! * scale)
      if (x < 0 || y < 0 || x > right || y > bottom) continue
      const code = codes ? codes[point]! : 0
      const color = mask && dim && !mask[point] ? dim[code]! : colors[code]!
      if (!color) continue
      let place = y * width + x
      if (size === 1) {
        pixels[place] = color
        continue
      }
      for (let row = 0; row < size; row += 1, place += width) {
        for (let column = 0; column < size; column += 1) pixels[place + column] = color
      }
    }
  }

  /** Return the point nearest to a place of the map, within a distance; nothing if there is none. */
  nearest(x: number, y: number, within: number, isShown: (point: number) => boolean): number | undefined {
    const order = this.#buckets()
    const bucket = (value: number): number => Math.min(BUCKETS - 1, Math.max(0, value >> 8))
    let best: number | undefined
    let least = within * within
    for (let row = bucket(y - within); row <= bucket(y + within); row += 1) {
      for (let column = bucket(x - within); column <= bucket(x + within); column += 1) {
        const place = row * BUCKETS + column
        for (let at = this.#starts[place]!; at < this.#starts[place + 1]!; at += 1) {
          const point = order[at]!
          const dx = this.xy[2 * point]! - x
          const dy = this.xy[2 * point + 1]! - y
          const distance = dx * dx + dy * dy
          if (distance <= least && isShown(point)) {
            least = distance
            best = point
          }
        }
      }
    }
    return best
  }

  /** Mark the points inside a polygon, as the service tests them: whole numbers and the even-odd rule. */
  inside(polygon: Uint16Array): { mask: Uint8Array; count: number } {
    const mask = new Uint8Array(this.count)
    let left = EDGE, right = 0, low = EDGE, high = 0
    for (let at = 0; at < polygon.length; at += 2) {
      left = Math.min(left, polygon[at]!)
      right = Math.max(right, polygon[at]!)
      low = Math.min(low, polygon[at + 1]!)
      high = Math.max(high, polygon[at + 1]!)
    }
    let count = 0
    for (let point = 0; point < this.count; point += 1) {
      const x = this.xy[2 * point]!
      const y = this.xy[2 * point + 1]!
      if (x < left || x > right || y < low || y > high || !isInside(polygon, x, y)) continue
      mask[point] = 1
      count += 1
    }
    return { mask, count }
  }

  #buckets(): Uint32Array {
    if (this.#order) return this.#order
    const { xy, count } = this
    const starts = this.#starts
    for (let at = 0; at < 2 * count; at += 2) starts[(xy[at + 1]! >> 8) * BUCKETS + (xy[at]! >> 8) + 1]! += 1
    for (let at = 1; at < starts.length; at += 1) starts[at]! += starts[at - 1]!
    const next = starts.slice()
    const order = new Uint32Array(count)
    for (let point = 0; point < count; point += 1) {
      const place = (xy[2 * point + 1]! >> 8) * BUCKETS + (xy[2 * point]! >> 8)
      order[next[place]!++] = point
    }
    this.#order = order
    return order
  }
}

function isInside(polygon: Uint16Array, x: number, y: number): boolean {
  let found = false
  for (let at = 0, last = polygon.length - 2; at < polygon.length; last = at, at += 2) {
    const x1 = polygon[at]!
    const y1 = polygon[at + 1]!
    const x2 = polygon[last]!
    const y2 = polygon[last + 1]!
    if (y1 > y === y2 > y) continue
    const side = (x - x1) * (y2 - y1) - (y - y1) * (x2 - x1)
    if (y2 > y1 ? side < 0 : side > 0) found = !found
  }
  return found
}

/** Return a drawn line as a polygon of few corners, in whole coordinates of the map. */
export function simplify(drawn: [number, number][]): Uint16Array | undefined {
  const clamp = (value: number): number => Math.min(EDGE, Math.max(0, Math.round(value)))
  const step = Math.max(1, Math.ceil(drawn.length / MOST_CORNERS))
  const corners = drawn.filter((_, at) => at % step === 0).map(([x, y]) => [clamp(x), clamp(y)] as const)
  const kept = corners.filter(([x, y], at) => at === 0 || x !== corners[at - 1]![0] || y !== corners[at - 1]![1])
  return kept.length < 3 ? undefined : Uint16Array.from(kept.flat())
}

/** Write a polygon as the text of an address: base64url of little-endian numbers. */
export function writePolygon(polygon: Uint16Array): string {
  let text = ''
  for (const value of polygon) text += String.fromCharCode(value & 255, value >> 8)
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')
}

export function readPolygon(text: string | null): Uint16Array | undefined {
  if (!text || !/^[A-Za-z0-9_-]+$/.test(text)) return undefined
  try {
    const data = atob(text.replaceAll('-', '+').replaceAll('_', '/'))
    if (data.length % 4 || data.length < 12) return undefined
    return Uint16Array.from({ length: data.length / 2 }, (_, at) => data.charCodeAt(2 * at) | (data.charCodeAt(2 * at + 1) << 8))
  } catch {
    return undefined
  }
}
