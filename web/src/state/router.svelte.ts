// The address of the page is its state: every view is a URL, and back, reload and a second tab keep it.

class Router {
  url = $state(new URL(window.location.href))

  get path(): string {
    return this.url.pathname
  }

  query(name: string): string | null {
    return this.url.searchParams.get(name)
  }

  /** All values of a parameter that may be repeated. */
  all(name: string): string[] {
    return this.url.searchParams.getAll(name)
  }

  /** Go to an address of this page. */
  go(href: string, { replace = false } = {}): void {
    const next = new URL(href, this.url)
    if (next.href === this.url.href) return
    const samePath = next.pathname === this.url.pathname
    window.history[replace ? 'replaceState' : 'pushState'](null, '', next)
    this.url = next
    if (!samePath) window.scrollTo(0, 0)
  }

  /** Change parameters of the address. A null, or an empty text, removes one. */
  set(changes: Record<string, string | string[] | null | undefined>, { replace = false } = {}): void {
    this.go(this.with(changes), { replace })
  }

  /** Return the present address with other parameters. */
  with(changes: Record<string, string | string[] | null | undefined>): string {
    const next = new URL(this.url)
    for (const [name, value] of Object.entries(changes)) {
      if (Array.isArray(value)) {
        next.searchParams.delete(name)
        for (const one of value) next.searchParams.append(name, one)
      } else if (value === null || value === undefined || value === '') next.searchParams.delete(name)
      else next.searchParams.set(name, value)
    }
    return next.pathname + next.search
  }
}

export const router = new Router()

window.addEventListener('popstate', () => {
  router.url = new URL(window.location.href)
})

document.addEventListener('click', (event) => {
  if (event.defaultPrevented || event.button !== 0) return
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
  const link = (event.target as Element).closest('a')
  if (!link || link.target || link.hasAttribute('download')) return
  const url = new URL(link.href, window.location.href)
  if (url.origin !== window.location.origin || url.pathname.startsWith('/api/')) return
  if (url.pathname === window.location.pathname && url.search === window.location.search && url.hash) return
  event.preventDefault()
  router.go(url.href)
})

/** Return the address of a page of a dataset. Without a ref, it shows the head of `main`. */
export function datasetHref(id: string, page = '', query: Record<string, string | string[] | null | undefined> = {}): string {
  const kept = Object.entries(query).flatMap(([name, value]) => [value ?? []].flat().map((one): [string, string] => [name, one])).filter((pair) => pair[1])
  const search = new URLSearchParams(kept).toString()
  return `/d/${id}${page ? `/${page}` : ''}${search ? `?${search}` : ''}`
}
