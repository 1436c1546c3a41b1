// Subsets: rows that no filter can express, such as those in a region of a map. Each is a text of the address, which
// the service reads; this says in words what it keeps.

export function subset(kind: string, ...parts: (string | number)[]): string {
  return [kind, ...parts.map((part) => encodeURIComponent(part))].join(':')
}

/** Say what a subset keeps, in a few words. */
export function describe(text: string): string {
  const [kind, ...rest] = text.split(':')
  const parts = rest.map((part) => decode(part))
  const of = (at: number): string => (parts[at] ? ` of ${parts[at]}` : '')
  switch (kind) {
    case 'class':
      return `with ${parts.join(':')}`
    case 'cell':
      return `objects${of(2)} at cell ${parts[0]}, ${parts[1]}`
    case 'area':
      return `objects${of(1)} of one size`
    case 'objects':
      return `${parts[0]}${parts[1] ? (Number(parts[1]) === Number(parts[0]) + 1 ? '' : ` to ${Number(parts[1]) - 1}`) : ' or more'} objects`
    case 'quality':
      return `check: ${(parts[0] ?? '').replace('_', ' ')}`
    case 'leak':
      return `${(parts[0] ?? '').replace('_', ' ')}: ${parts[1] || 'no split'} and ${parts[2] || 'no split'}`
    case 'map':
      return `region of the map of ${parts[0]}`
    case 'row':
      return `row ${parts[0]}`
    default:
      return text
  }
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}
