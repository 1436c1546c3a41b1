// Which rows of a long list are in view. Browsers end an element after some 16 million pixels, so a longer list moves
// faster than its scroll bar.

const MOST_PIXELS = 15_000_000

export class VirtualScroll {
  height = $state(600)
  top = $state(0)

  constructor(
    readonly count: () => number,
    readonly rowHeight: () => number,
    readonly perRow: () => number = () => 1,
    readonly spareRows = 2,
  ) {}

  get lines(): number {
    return Math.ceil(this.count() / this.perRow())
  }

  /** The height of the element that scrolls. */
  get pixels(): number {
    return Math.min(this.lines * this.rowHeight(), MOST_PIXELS)
  }

  /** Rows of pixels of the list for each of the scroll bar. */
  get #scale(): number {
    const all = this.lines * this.rowHeight()
    return all <= MOST_PIXELS ? 1 : (all - this.height) / (MOST_PIXELS - this.height)
  }

  get firstLine(): number {
    return Math.max(0, Math.floor((this.top * this.#scale) / this.rowHeight()) - this.spareRows)
  }

  get lastLine(): number {
    const shown = Math.ceil(this.height / this.rowHeight()) + 1
    return Math.min(this.lines - 1, this.firstLine + shown + 2 * this.spareRows)
  }

  get first(): number {
    return this.firstLine * this.perRow()
  }

  get last(): number {
    return Math.min(this.count() - 1, (this.lastLine + 1) * this.perRow() - 1)
  }

  /** Where a line is drawn in the element that scrolls. */
  y(line: number): number {
    return line * this.rowHeight() - this.top * this.#scale + this.top
  }

  /** Return the scroll position that shows a line, near to the present one. */
  reveal(line: number): number {
    const start = this.top * this.#scale
    const y = line * this.rowHeight()
    if (y < start) return y / this.#scale
    const end = y + this.rowHeight() - this.height
    return end > start ? end / this.#scale : this.top
  }
}
