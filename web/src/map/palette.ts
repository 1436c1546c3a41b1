// Colours of points: one for each frequent value, or a scale for numbers.

const CLASSES = [
  '#4c78d8', '#e5853b', '#3aa76d', '#d2494a', '#8e63c9', '#a5714f', '#d66fb0', '#7d8896', '#b3a52b', '#2fb3c4',
  '#a3b8f0', '#f3bb8a', '#97d8b2', '#eda3a3', '#c6aeea', '#d0b29f', '#eebfdd', '#bcc3cb', '#dcd383', '#97dce5',
] // prettier-ignore
const SCALE = ['#3b2f7f', '#31688e', '#21918c', '#5ec962', '#fde725']
const OTHER = '#8b93a1'
const NULL = '#b9bec7'

export function classColor(code: number): string {
  return code === 254 ? OTHER : code === 255 ? NULL : CLASSES[code % CLASSES.length]!
}

/** A CSS gradient of the scale, from low to high. */
export const GRADIENT = `linear-gradient(to right, ${SCALE.join(', ')})`

/** Return the colours of all bytes as pixels. A hidden one is 0. */
export function pixels(isRange: boolean, hidden: ReadonlySet<number>): Uint32Array {
  return Uint32Array.from({ length: 256 }, (_, code) => {
    if (hidden.has(code)) return 0
    return pack(...(isRange && code < 254 ? mixed(code / 253) : rgb(classColor(code))))
  })
}

/** Return colours nearer to the background. */
export function dimmed(colors: Uint32Array, background: [number, number, number]): Uint32Array {
  return colors.map((color) => {
    if (!color) return 0
    const parts = [color & 255, (color >> 8) & 255, (color >> 16) & 255].map((part, at) => Math.round(0.14 * part + 0.86 * background[at]!))
    return pack(parts[0]!, parts[1]!, parts[2]!)
  })
}

export function pack(red: number, green: number, blue: number): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0
}

/** Return the colour of a style sheet, such as "rgb(13, 16, 21)". */
export function parse(css: string): [number, number, number] {
  const found = css.match(/\d+/g)?.map(Number) ?? []
  return [found[0] ?? 255, found[1] ?? 255, found[2] ?? 255]
}

function mixed(share: number): [number, number, number] {
  const place = Math.min(share, 0.9999) * (SCALE.length - 1)
  const [one, two] = [rgb(SCALE[Math.floor(place)]!), rgb(SCALE[Math.floor(place) + 1]!)]
  const part = place - Math.floor(place)
  return [0, 1, 2].map((at) => Math.round(one[at]! + part * (two[at]! - one[at]!))) as [number, number, number]
}

function rgb(hex: string): [number, number, number] {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)) as [number, number, number]
}
