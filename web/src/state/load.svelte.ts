// A value that comes from the service: skeletons first, then the value or a problem. The last request wins.

import { isAbort, problemOf, type Problem } from '../api/client'

export class Load<T> {
  value = $state.raw<T>()
  problem = $state.raw<Problem>()
  isBusy = $state(false)
  #abort: AbortController | undefined

  /** Ask the service. An older question that is still open is forgotten. */
  async run(ask: (signal: AbortSignal) => Promise<T>): Promise<void> {
    this.#abort?.abort()
    const abort = new AbortController()
    this.#abort = abort
    this.isBusy = true
    try {
      const value = await ask(abort.signal)
      if (abort.signal.aborted) return
      this.value = value
      this.problem = undefined
    } catch (error) {
      if (isAbort(error) || abort.signal.aborted) return
      this.problem = problemOf(error)
    } finally {
      if (this.#abort === abort) this.isBusy = false
    }
  }

  cancel(): void {
    this.#abort?.abort()
  }
}
