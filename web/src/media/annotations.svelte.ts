// Annotations of the images in view: asked for together, and few are kept.

import { api, done, isAbort, problemOf } from '../api/client'
import type { DatasetState } from '../state/dataset.svelte'
import { notices } from '../state/session.svelte'

const MOST_IMAGES = 50
const KEPT = 1500

export interface RunLength {
  size: [number, number]
  counts: number[]
}

export interface Annotation {
  id: string
  type: 'box' | 'polygon' | 'mask' | 'keypoints' | 'label'
  class_name: string
  bbox?: [number, number, number, number]
  rotation?: number
  segmentation?: number[][] | RunLength
  keypoints?: number[]
  attributes?: Record<string, unknown>
}

export class Annotations {
  tick = $state(0)
  #known = new Map<string, Annotation[]>()
  #asked = new Set<string>()

  constructor(
    readonly ds: DatasetState,
    readonly ref = ds.digest,
  ) {}

  /** Return the annotations of an image that are here. Reading `tick` makes it reactive. */
  of(path: string): Annotation[] | undefined {
    return this.tick >= 0 ? this.#known.get(path) : undefined
  }

  /** Ask for the annotations of images that are not here. */
  need(paths: string[]): void {
    const missing = paths.filter((path) => !this.#known.has(path) && !this.#asked.has(path))
    for (let start = 0; start < missing.length; start += MOST_IMAGES) void this.#fetch(missing.slice(start, start + MOST_IMAGES))
  }

  async #fetch(paths: string[]): Promise<void> {
    paths.forEach((path) => this.#asked.add(path))
    try {
      const params = { path: this.ds.path, query: { image: paths, ref: this.ref } }
      const answer = await done(api.GET('/api/v1/datasets/{workspace}/{name}/image-annotations', { params }))
      for (const [path, found] of Object.entries(answer.images)) this.#known.set(path, found as unknown as Annotation[])
      for (const path of this.#known.keys()) {
        if (this.#known.size <= KEPT) break
        this.#known.delete(path)
      }
      this.tick += 1
    } catch (error) {
      if (!isAbort(error)) notices.show(`Annotations: ${problemOf(error).detail}`, { isError: true })
    } finally {
      paths.forEach((path) => this.#asked.delete(path))
    }
  }
}
