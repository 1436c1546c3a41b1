// One version of a dataset, as all its pages share it: what the manifest says, its columns and its names.

import { api, done, encodePath, type Column, type CollectionVersion, type Ref, type TableSchema, type Version } from '../api/client'
import { Load } from './load.svelte'

interface Opened {
  version: Version
  tables: TableSchema[]
  refs: Ref[]
  versions: CollectionVersion[]
}

/** A dataset at a ref; without one, at the head of `main`. Its pages read the version that this was when it opened. */
export class DatasetState {
  readonly load = new Load<Opened>()

  constructor(
    readonly id: string,
    readonly ref: string | null,
  ) {}

  get path(): { workspace: string; name: string } {
    const [workspace, name] = this.id.split('/') as [string, string]
    return { workspace, name }
  }

  open(): Promise<void> {
    const path = this.path
    return this.load.run(async (signal) => {
      const version = await done(
        api.GET('/api/v1/datasets/{workspace}/{name}', { params: { path, query: { ref: this.ref ?? undefined } }, signal }),
      )
      const pinned = { params: { path, query: { ref: version.version } }, signal }
      const [schema, refs] = await Promise.all([
        done(api.GET('/api/v1/datasets/{workspace}/{name}/schema', pinned)),
        done(api.GET('/api/v1/datasets/{workspace}/{name}/refs', { params: { path }, signal })),
      ])
      const versions = isCollection(schema.tables, version)
        ? (await done(api.GET('/api/v1/datasets/{workspace}/{name}/versions', { params: { path, query: { limit: 1000 } }, signal }))).versions
        : []
      return { version, tables: schema.tables, refs: refs.refs, versions }
    })
  }

  get version(): Version {
    return this.load.value!.version
  }

  get tables(): TableSchema[] {
    return this.load.value!.tables
  }

  get refs(): Ref[] {
    return this.load.value!.refs
  }

  get versions(): CollectionVersion[] {
    return this.load.value!.versions
  }

  /** The hash of the version, which never changes: answers by it are kept by the browser. */
  get digest(): string {
    return this.version.version
  }

  get isCollection(): boolean {
    return isCollection(this.tables, this.version)
  }

  /** Whether this is the newest version of `main`. */
  get isHead(): boolean {
    const main = this.refs.find((ref) => ref.kind === 'branch' && ref.name === 'main')
    return main?.version === this.digest
  }

  /** What the chip of the version says: a name if there is one, and its state. */
  get chip(): { text: string; kind: 'head' | 'pinned' | 'bad' } {
    const named = this.ref && !/^[0-9a-f]{64}$/.test(this.ref) ? this.ref : null
    const state = this.versions.find((one) => one.version === this.digest)
    if (state && state.status !== 'valid' && !this.isHead) return { text: `${named ?? state.name} · ${state.status}`, kind: 'bad' }
    if (this.isHead) return { text: named && named !== 'main' ? `HEAD · ${named}` : 'HEAD', kind: 'head' }
    return { text: named ?? this.digest.slice(0, 10), kind: 'pinned' }
  }

  /** The table that Browse opens: that of the URL, else one with images, else the first. */
  table(name: string | null): TableSchema | undefined {
    return (
      this.tables.find((one) => one.table === name) ??
      this.tables.find((one) => one.table === 'images') ??
      this.tables.find((one) => imageColumn(one)) ??
      this.tables[0]
    )
  }

  thumbnail(column: Column, path: string, edge: '128' | '256' | '512' = '256'): string {
    return `/api/v1/datasets/${this.id}/thumbnails/${encodePath(path)}?ref=${this.digest}&artifact=${encodeURIComponent(column.artifact ?? '')}&edge=${edge}`
  }

  file(column: Column, path: string): string {
    return `/api/v1/datasets/${this.id}/images/${encodePath(path)}?ref=${this.digest}&artifact=${encodeURIComponent(column.artifact ?? '')}`
  }
}

export function imageColumn(table: TableSchema): Column | undefined {
  return table.columns.find((column) => column.refers_to === 'image')
}

function isCollection(tables: TableSchema[], version: Version): boolean {
  const names = tables.map((one) => one.table)
  const hasFiles = version.entries.some((entry) => entry.section === 'artifacts' && entry.name === 'images')
  return names.includes('images') && names.includes('annotations') && hasFiles
}
