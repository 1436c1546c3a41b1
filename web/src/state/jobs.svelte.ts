// The jobs of the service, kept up to date by its events while a page shows them.

import { api, done, isAbort, problemOf, type Job, type Problem } from '../api/client'

const AT_LEAST_MS = 250

export const ENDED = ['done', 'failed', 'cancelled']

class Jobs {
  list = $state.raw<Job[]>([])
  problem = $state.raw<Problem>()
  isLoaded = $state(false)
  #source: EventSource | undefined
  #followers = 0
  #timer: ReturnType<typeof setTimeout> | undefined

  async load(): Promise<void> {
    try {
      const found = await done(api.GET('/api/v1/jobs', { params: { query: { limit: 200 } } }))
      this.list = found.jobs
      this.problem = undefined
    } catch (error) {
      if (!isAbort(error)) this.problem = problemOf(error)
    } finally {
      this.isLoaded = true
    }
  }

  /** Follow the jobs until the function that is returned is called. */
  follow(): () => void {
    this.#followers += 1
    if (this.#followers === 1) {
      void this.load()
      this.#source = new EventSource('/api/v1/events')
      this.#source.addEventListener('job', () => this.#soon())
    }
    return () => {
      this.#followers -= 1
      if (this.#followers === 0) {
        this.#source?.close()
        clearTimeout(this.#timer)
        this.#timer = undefined
      }
    }
  }

  /** Many events within a moment are one question. */
  #soon(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      void this.load()
    }, AT_LEAST_MS)
  }
}

export const jobs = new Jobs()

const POLL_MS = 400

/** Wait until a job has ended, and return it. */
export async function waitForJob(id: string, progress?: (job: Job) => void): Promise<Job> {
  for (;;) {
    const job = await done(api.GET('/api/v1/jobs/{job_id}', { params: { path: { job_id: id } } }))
    progress?.(job)
    if (ENDED.includes(job.state)) return job
    await new Promise((resolve) => setTimeout(resolve, POLL_MS))
  }
}

/** Return the problem of a job that did not end well. */
export function problemOfJob(job: Job): Problem | undefined {
  if (job.state === 'done') return undefined
  const error = job.error as { code?: string; detail?: string; hint?: string } | null
  return { status: 0, code: error?.code ?? job.state, detail: error?.detail ?? `The job is ${job.state}.`, hint: error?.hint ?? null }
}
