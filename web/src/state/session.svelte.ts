// Who is signed in, and short messages about what was done.

import { api, done, type Schemas } from '../api/client'
import { Load } from './load.svelte'

export const caller = new Load<Schemas['CallerView']>()

export function loadCaller(): Promise<void> {
  return caller.run((signal) => done(api.GET('/api/v1/session', { signal })))
}

const MAY_WRITE = ['maintainer', 'owner']

/** Return whether a role, as the service states it for a dataset, may change the dataset. */
export function mayWrite(role: string): boolean {
  return MAY_WRITE.includes(role)
}

interface Notice {
  id: number
  text: string
  isError: boolean
}

class Notices {
  list = $state<Notice[]>([])
  #next = 0

  show(text: string, { isError = false } = {}): void {
    if (this.list.some((notice) => notice.text === text)) return
    const notice = { id: this.#next++, text, isError }
    this.list.push(notice)
    setTimeout(() => this.dismiss(notice.id), isError ? 10_000 : 4_000)
  }

  dismiss(id: number): void {
    this.list = this.list.filter((notice) => notice.id !== id)
  }
}

export const notices = new Notices()

export async function copy(text: string, what = 'Copied'): Promise<void> {
  try {
    await navigator.clipboard.writeText(text)
    notices.show(what)
  } catch {
    notices.show('The browser did not allow copying.', { isError: true })
  }
}
