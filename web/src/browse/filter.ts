// The filter is SQL text that people edit. Facets read their own conditions from it, and write them back.

export type Value = string | number | boolean | null

export interface Condition {
  column: string
  values?: Value[]
  range?: [number, number]
}

const NAME = String.raw`("(?:[^"]|"")+"|[A-Za-z_][A-Za-z0-9_]*)`
const LITERAL = String.raw`(?:'(?:[^']|'')*'|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false)`
const EQUAL = new RegExp(`^${NAME}\\s*=\\s*(${LITERAL})$`, 'i')
const IN = new RegExp(`^${NAME}\\s+IN\\s*\\(\\s*(${LITERAL}(?:\\s*,\\s*${LITERAL})*)\\s*\\)$`, 'i')
const NULLS = new RegExp(`^${NAME}\\s+IS\\s+NULL$`, 'i')
const BETWEEN = new RegExp(`^${NAME}\\s+BETWEEN\\s+(-?[\\d.eE+-]+)\\s+AND\\s+(-?[\\d.eE+-]+)$`, 'i')

/** Split a filter at each AND that is outside of quotes and parentheses, and not that of a BETWEEN. */
export function conjuncts(filter: string): string[] {
  const parts: string[] = []
  let depth = 0
  let start = 0
  let isBetween = false
  for (const match of filter.matchAll(/'(?:[^']|'')*'|"(?:[^"]|"")*"|[()]|\b(?:AND|OR|BETWEEN|CASE)\b/gi)) {
    const word = match[0].toUpperCase()
    if (word === '(') depth += 1
    else if (word === ')') depth -= 1
    else if (depth > 0) continue
    else if (word === 'OR' || word === 'CASE') return [filter.trim()].filter(Boolean)
    else if (word === 'BETWEEN') isBetween = true
    else if (word === 'AND' && isBetween) isBetween = false
    else if (word === 'AND') {
      parts.push(filter.slice(start, match.index))
      start = match.index + 3
    }
  }
  parts.push(filter.slice(start))
  return parts.map((part) => part.trim()).filter(Boolean)
}

/** Return what a part of a filter asks of one column; nothing for other conditions. */
export function parseCondition(part: string): Condition | undefined {
  let match = EQUAL.exec(part)
  if (match) return { column: unquote(match[1]!), values: [literal(match[2]!)] }
  match = IN.exec(part)
  if (match) {
    const values = match[2]!.match(new RegExp(LITERAL, 'gi'))!.map(literal)
    return { column: unquote(match[1]!), values }
  }
  match = NULLS.exec(part)
  if (match) return { column: unquote(match[1]!), values: [null] }
  match = BETWEEN.exec(part)
  if (match) return { column: unquote(match[1]!), range: [Number(match[2]), Number(match[3])] }
  return undefined
}

/** Return the condition of a filter on one column. */
export function conditionOf(filter: string, column: string): Condition | undefined {
  return conjuncts(filter)
    .map(parseCondition)
    .find((one) => one?.column === column)
}

/** Return the filter with another condition on a column; without one, it keeps all values of the column. */
export function withCondition(filter: string, condition: Condition): string {
  const kept = conjuncts(filter).filter((part) => parseCondition(part)?.column !== condition.column)
  const text = write(condition)
  const parts = text ? [...kept, text] : kept
  return parts.map((part) => (parts.length > 1 && /\bOR\b/i.test(stripped(part)) ? `(${part})` : part)).join(' AND ')
}

function write({ column, values, range }: Condition): string {
  const name = /^[a-z_][a-z0-9_]*$/.test(column) ? column : `"${column.replaceAll('"', '""')}"`
  if (range) return `${name} BETWEEN ${range[0]} AND ${range[1]}`
  if (!values?.length) return ''
  if (values.includes(null)) return `${name} IS NULL`
  return values.length === 1 ? `${name} = ${quote(values[0]!)}` : `${name} IN (${values.map((value) => quote(value!)).join(', ')})`
}

function quote(value: Exclude<Value, null>): string {
  return typeof value === 'string' ? `'${value.replaceAll("'", "''")}'` : String(value)
}

function unquote(name: string): string {
  return name.startsWith('"') ? name.slice(1, -1).replaceAll('""', '"') : name
}

function literal(text: string): Value {
  if (text.startsWith("'")) return text.slice(1, -1).replaceAll("''", "'")
  if (/^(true|false)$/i.test(text)) return text.toLowerCase() === 'true'
  return Number(text)
}

/** Return a filter without its texts and without what is in parentheses. */
function stripped(part: string): string {
  let text = part.replace(/'(?:[^']|'')*'|"(?:[^"]|"")*"/g, '')
  for (let before = ''; before !== text; ) {
    before = text
    text = text.replace(/\([^()]*\)/g, '')
  }
  return text
}
