// Numbers, sizes and times as people read them.

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB']
const numbers = new Intl.NumberFormat('en')
const dates = new Intl.DateTimeFormat('en', { year: 'numeric', month: 'short', day: 'numeric' })
const moments = new Intl.DateTimeFormat('en', { dateStyle: 'medium', timeStyle: 'medium' })
const STEPS: [number, string][] = [
  [60, 'second'],
  [3600, 'minute'],
  [86400, 'hour'],
  [30 * 86400, 'day'],
]

export function count(value: number): string {
  return numbers.format(value)
}

/** Return a count with its noun: "1 image", "2 images". */
export function plural(value: number, noun: string, many = `${noun}s`): string {
  return `${count(value)} ${value === 1 ? noun : many}`
}

export function bytes(value: number): string {
  let at = 0
  while (value >= 1000 && at < UNITS.length - 1) {
    value /= 1000
    at += 1
  }
  return `${at && value < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[at]}`
}

export function short(digest: string | null | undefined): string {
  return (digest ?? '').slice(0, 10)
}

export function moment(time: string): string {
  return moments.format(new Date(time))
}

/** Return how long ago a time was; older ones as a date. */
export function ago(time: string, now = Date.now()): string {
  const seconds = Math.max(0, (now - new Date(time).getTime()) / 1000)
  let unit = 1
  for (const [limit, name] of STEPS) {
    if (seconds < limit) {
      const passed = Math.floor(seconds / unit)
      return name === 'second' && passed < 5 ? 'just now' : `${plural(passed, name)} ago`
    }
    unit = limit
  }
  return dates.format(new Date(time))
}

/** Return a number in as many digits as a label needs. */
export function number(value: number): string {
  if (Number.isInteger(value)) return count(value)
  const size = Math.abs(value)
  return size >= 1000 ? count(Math.round(value)) : String(Number(value.toPrecision(4)))
}

export function cell(value: unknown): string {
  if (value === null || value === undefined) return ''
  if (typeof value === 'number') return number(value)
  if (typeof value === 'object') {
    if ('size_bytes' in value && Object.keys(value).length === 1) return bytes(Number(value.size_bytes))
    return JSON.stringify(value)
  }
  return String(value)
}

export function percent(part: number, whole: number): string {
  return whole ? `${((100 * part) / whole).toFixed(part / whole < 0.1 ? 1 : 0)} %` : '0 %'
}
