// The typed client of the API. Its types are generated from the OpenAPI document: `npm run client`.

import createClient from 'openapi-fetch'
import type { components, paths } from './schema'

export type Schemas = components['schemas']
export type Dataset = Schemas['DatasetView']
export type Version = Schemas['VersionView']
export type TableSchema = Schemas['TableSchemaView']
export type Column = Schemas['ColumnView']
export type Sample = Schemas['SampleView']
export type Commit = Schemas['CommitView']
export type Ref = Schemas['RefView']
export type ColumnStatistics = Schemas['ColumnStatisticsView']
export type CollectionStatistics = Schemas['CollectionStatisticsView']
export type CollectionVersion = Schemas['CollectionVersionView']
export type Impact = Schemas['ImpactView']
export type Receipt = Schemas['ErasureReceiptView']
export type Job = Schemas['JobView']

export interface Problem {
  status: number
  code: string
  detail: string
  hint?: string | null
  impact?: Impact | null
}

/** What the service answered instead of a result: a fact, and one next step. */
export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail)
  }
}

export const api = createClient<paths>({
  baseUrl: '',
  headers: { 'X-Warp-Request': '1' },
  // The path of a file keeps its slashes, which some proxies refuse in their escaped form.
  pathSerializer: (path, values) => path.replace(/\{(\w+)\}/g, (_, name: string) => encodePath(String(values[name]))),
})

/** Return a path with all but its slashes escaped. */
export function encodePath(path: string): string {
  return path.split('/').map(encodeURIComponent).join('/')
}

interface Answer<T> {
  data?: T
  error?: unknown
  response: Response
}

/** Return the body of an answer, or raise its problem. */
export async function done<T>(request: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>
  try {
    answer = await request
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new ApiError({
      status: 0,
      code: 'unreachable',
      detail: 'The service does not answer.',
      hint: 'Check that `warp serve` is running, then try again.',
    })
  }
  if (answer.response.ok) return answer.data as T
  throw new ApiError(toProblem(answer.error, answer.response))
}

function toProblem(body: unknown, response: Response): Problem {
  if (typeof body === 'object' && body !== null && 'detail' in body) return body as Problem
  return { status: response.status, code: 'unknown', detail: `The service answered with ${response.status}.` }
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError'
}

export function problemOf(error: unknown): Problem {
  if (error instanceof ApiError) return error.problem
  return { status: 0, code: 'page', detail: error instanceof Error ? error.message : String(error) }
}
