// An upload of many images: sent file by file, continued after a broken connection, a reload or a killed service.
//
// The service acknowledges each file when its bytes are stored. What it has acknowledged is never sent again: a file is
// known by its path and hash. Large files go in parts by the tus protocol. Files that are no images are refused one by
// one, and the others are committed.

import { api, ApiError, done, encodePath, problemOf, type Problem, type Schemas } from '../api/client'
import { count } from '../state/format'

const WORKERS = 4
const PART_BYTES = 8 * 1024 * 1024
const WAITS_MS = [500, 1000, 2000, 4000, 8000]
const STORED = 'warp-upload:'

export interface Picked {
  file: File
  path: string
}

export interface BadFile {
  path: string
  reason: string
}

interface Begun {
  key: string
  total: number
  time: string
}

type Path = { workspace: string; name: string }

/** Files that were dropped before their dataset was there. */
export const handed = $state<{ files: Picked[] }>({ files: [] })

export class Upload {
  total = $state(0)
  stored = $state(0)
  sentBytes = $state(0)
  totalBytes = $state(0)
  bad = $state.raw<BadFile[]>([])
  state = $state<'idle' | 'sending' | 'waiting' | 'ready' | 'committing' | 'done'>('idle')
  problem = $state.raw<Problem>()
  version = $state<string>()
  previous = $state<string>()
  #id = ''
  #stopped = false

  constructor(
    readonly dataset: string,
    readonly path: Path,
  ) {}

  /** An upload of this browser that was begun and not committed. */
  get begun(): Begun | undefined {
    try {
      const text = localStorage.getItem(STORED + this.dataset)
      return text ? (JSON.parse(text) as Begun) : undefined
    } catch {
      return undefined
    }
  }

  /** Look how much of an upload that was interrupted has arrived. */
  async find(): Promise<void> {
    const begun = this.begun
    if (!begun || this.state !== 'idle') return
    try {
      const found = await this.#open(begun.key)
      if (found.version) return this.#forget()
      this.total = begun.total
      this.stored = found.files.length
      if (found.files.length) this.state = 'ready'
    } catch (error) {
      this.problem = problemOf(error)
    }
  }

  /** Send files, and leave out those that have arrived. Bad ones are listed, and the others go on. */
  async send(files: Picked[]): Promise<void> {
    this.#stopped = false
    this.bad = []
    this.problem = undefined
    this.total = files.length
    this.totalBytes = files.reduce((sum, one) => sum + one.file.size, 0)
    this.stored = this.sentBytes = 0
    this.state = 'sending'
    const key = this.begun?.key ?? crypto.getRandomValues(new Uint32Array(4)).join('-')
    localStorage.setItem(STORED + this.dataset, JSON.stringify({ key, total: files.length, time: new Date().toISOString() }))
    try {
      const found = await this.#patiently(() => this.#open(key))
      const known = new Map(found.files.map((one) => [one.path, one]))
      const queue = [...files]
      const workers = Array.from({ length: WORKERS }, () => this.#work(queue, known))
      await Promise.all(workers)
      if (!this.#stopped) this.state = 'ready'
      if (!this.#stopped && this.stored === 0) this.state = 'idle'
    } catch (error) {
      this.problem = problemOf(error)
      this.state = 'idle'
    }
  }

  stop(): void {
    this.#stopped = true
  }

  /** Make what has arrived part of HEAD, with one commit. */
  async commit(message: string, { replace = false } = {}): Promise<void> {
    this.state = 'committing'
    this.problem = undefined
    try {
      const head = await this.#head()
      const found = await this.#open(this.begun!.key)
      const images = replace ? found.files.map((one) => ({ path: one.path, replace: true, annotations: [] })) : []
      const params = { path: { ...this.path, upload_id: this.#id } }
      const done_ = await this.#patiently(() =>
        done(api.POST('/api/v1/datasets/{workspace}/{name}/uploads/{upload_id}/commit', { params, body: { message, images, remove: [] } })),
      )
      this.previous = head
      this.version = (done_ as Schemas['UploadView']).version ?? undefined
      this.state = 'done'
      this.#forget()
    } catch (error) {
      this.problem = problemOf(error)
      this.state = 'ready'
    }
  }

  /** Forget an upload that was interrupted. The service keeps its files apart from the dataset. */
  discard(): void {
    this.#forget()
    this.state = 'idle'
    this.total = this.stored = 0
  }

  async #work(queue: Picked[], known: Map<string, Schemas['ReceiptView']>): Promise<void> {
    for (let next = queue.shift(); next && !this.#stopped; next = queue.shift()) {
      const { file, path } = next
      try {
        const digest = await hashOf(file)
        const receipt = known.get(path)
        const isThere = receipt && receipt.size_bytes === file.size && (digest === undefined || receipt.sha256 === digest)
        if (!isThere) await this.#patiently(() => this.#sendOne(file, path, digest))
        this.stored += 1
      } catch (error) {
        this.bad = [...this.bad, { path, reason: problemOf(error).detail }]
      }
      this.sentBytes += file.size
    }
  }

  async #sendOne(file: File, path: string, digest: string | undefined): Promise<void> {
    const isPlain = path.split('/').every((part) => part && part !== '.' && part !== '..')
    if (digest !== undefined && isPlain && file.size <= PART_BYTES) {
      await ask(`${this.#url}/files/${encodePath(path)}`, { method: 'PUT', body: file, headers: { 'X-Content-SHA256': digest, 'Content-Type': 'application/octet-stream' } })
      return
    }
    const metadata = [`filename ${base64(path)}`, ...(digest ? [`sha256 ${base64(digest)}`] : [])].join(',')
    const begun = await ask(`${this.#url}/partial`, { method: 'POST', headers: { 'Upload-Length': String(file.size), 'Upload-Metadata': metadata } })
    const place = new URL(begun.headers.get('Location') ?? '', window.location.href).pathname
    let offset = Number(begun.headers.get('Upload-Offset'))
    while (offset < file.size) {
      const body = file.slice(offset, offset + PART_BYTES)
      const headers = { 'Upload-Offset': String(offset), 'Content-Type': 'application/offset+octet-stream' }
      const answer = await ask(place, { method: 'PATCH', body, headers })
      offset = Number(answer.headers.get('Upload-Offset'))
    }
  }

  async #open(key: string): Promise<Schemas['UploadView']> {
    const body = { artifact: 'images', key, only_images: true }
    const found = (await done(api.POST('/api/v1/datasets/{workspace}/{name}/uploads', { params: { path: this.path }, body }))) as Schemas['UploadView']
    this.#id = found.id
    return found
  }

  async #head(): Promise<string | undefined> {
    const found = await done(api.GET('/api/v1/datasets/{workspace}/{name}/head', { params: { path: this.path } }))
    return found.version
  }

  /** Try again while the service does not answer, or cannot now. Its refusals are final. */
  async #patiently<T>(work: () => Promise<T>): Promise<T> {
    for (let at = 0; ; at++) {
      try {
        const value = await work()
        if (this.state === 'waiting') this.state = 'sending'
        return value
      } catch (error) {
        const { status } = problemOf(error)
        const isPassing = error instanceof ApiError && (status === 0 || status === 429 || status >= 500)
        if (!isPassing || this.#stopped) throw error
        this.state = 'waiting'
        await new Promise((resolve) => setTimeout(resolve, WAITS_MS[Math.min(at, WAITS_MS.length - 1)]))
      }
    }
  }

  #forget(): void {
    localStorage.removeItem(STORED + this.dataset)
  }

  get #url(): string {
    return `/api/v1/datasets/${this.dataset}/uploads/${this.#id}`
  }
}

async function ask(url: string, init: RequestInit): Promise<Response> {
  const sent = fetch(url, { ...init, headers: { ...init.headers, 'X-Warp-Request': '1', ...(url.includes('/partial') && { 'Tus-Resumable': '1.0.0' }) } })
  let answer: Response
  try {
    answer = await sent
  } catch {
    throw new ApiError({ status: 0, code: 'unreachable', detail: 'The service does not answer.' })
  }
  if (answer.ok) return answer
  const body = (await answer.json().catch(() => ({}))) as Partial<Problem>
  throw new ApiError({ status: answer.status, code: body.code ?? 'unknown', detail: body.detail ?? `The service answered with ${answer.status}.`, hint: body.hint ?? null })
}

/** Return the SHA-256 of a file; nothing for a large one, and where the browser has no means to compute it. */
async function hashOf(file: File): Promise<string | undefined> {
  if (!('subtle' in crypto) || file.size > 8 * PART_BYTES) return undefined
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', await file.arrayBuffer()))
  return [...digest].map((byte) => byte.toString(16).padStart(2, '0')).join('')
}

function base64(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)))
}

/** Return the files of a drop, also those in directories. */
export async function droppedFiles(transfer: DataTransfer): Promise<Picked[]> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry()).filter((one) => one !== null)
  if (!entries.length) return [...transfer.files].map((file) => ({ file, path: file.name }))
  const found = await Promise.all(entries.map((entry) => walk(entry, '')))
  return found.flat()
}

async function walk(entry: FileSystemEntry, prefix: string): Promise<Picked[]> {
  const path = prefix + entry.name
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject))
    return entry.name.startsWith('.') ? [] : [{ file, path }]
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader()
  const children: FileSystemEntry[] = []
  for (;;) {
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject))
    if (!part.length) break
    children.push(...part)
  }
  const found = await Promise.all(children.map((child) => walk(child, `${path}/`)))
  return found.flat()
}

/** Return the files of an input. Those of a directory keep their paths. */
export function pickedFiles(list: FileList | null): Picked[] {
  return [...(list ?? [])].map((file) => ({ file, path: file.webkitRelativePath || file.name }))
}

export function describeUpload(upload: Upload): string {
  return `${count(upload.stored)} of ${count(upload.total)}`
}
