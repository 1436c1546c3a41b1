// One colour for each class: the same on every page and for every user. Classes that a page knows together get
// different colours, as long as there are enough.

const COLORS: [hue: number, saturation: number, lightness: number][] = [
  [212, 90, 64], [28, 95, 60], [150, 62, 52], [340, 85, 68], [48, 95, 58], [268, 85, 72], [184, 72, 50], [4, 85, 65],
  [88, 60, 54], [300, 65, 68], [235, 85, 74], [20, 45, 58], [168, 75, 66], [320, 45, 58], [60, 70, 72], [200, 25, 70],
]

let places = $state.raw<Record<string, number>>({})

function hash(name: string): number {
  let value = 2166136261
  for (let at = 0; at < name.length; at++) value = Math.imul(value ^ name.charCodeAt(at), 16777619)
  return (value >>> 0) % COLORS.length
}

/** Give the classes of a dataset colours that differ. Each takes its own, or the next one that is free. */
export function setClasses(names: string[]): void {
  const taken = new Set<number>()
  const found: Record<string, number> = {}
  for (const name of [...names].sort()) {
    let place = hash(name)
    for (let step = 0; step < COLORS.length && taken.has(place); step++) place = (place + 1) % COLORS.length
    taken.add(place)
    found[name] = place
  }
  places = found
}

export function classHsl(name: string): [number, number, number] {
  return COLORS[places[name] ?? hash(name)]!
}

export function classColor(name: string): string {
  const [hue, saturation, lightness] = classHsl(name)
  return `hsl(${hue} ${saturation}% ${lightness}%)`
}
