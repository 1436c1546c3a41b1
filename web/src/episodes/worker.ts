// Reads an episode beside the page: byte ranges, checksums and decoding, so that the page stays responsive.
//
// Checksums and zstd are WebAssembly, which the policy of the page forbids and that of this worker allows.

import { Cameras } from './cameras'
import { EpisodeFile, explain } from './episode-file'
import type { Answer, Channel, Question } from './messages'

interface Port {
  onmessage: ((event: MessageEvent<Question>) => void) | null
  postMessage(message: Answer, transfer?: Transferable[]): void
}

const port = globalThis as unknown as Port
let opened: Promise<{ file: EpisodeFile; cameras: Cameras; channels: Channel[] }> | undefined

async function answer(question: Question): Promise<[unknown, Transferable[]]> {
  if (question.kind === 'open') {
    const file = await EpisodeFile.open(question.urls)
    const described = await file.describe()
    opened = Promise.resolve({ file, cameras: new Cameras(file), channels: described.channels })
    return [described, []]
  }
  if (!opened) throw new Error('no episode is open')
  const { file, cameras, channels } = await opened
  if (question.kind === 'values') {
    const found = await file.values(question.block, question.start, question.stop, question.width)
    return [found, [found.at.buffer as ArrayBuffer, found.data.buffer as ArrayBuffer]]
  }
  if (question.kind === 'times') {
    const found = await file.times(question.start, question.stop)
    return [found, [found.buffer as ArrayBuffer]]
  }
  const encoding = channels.find((one) => one.block === question.block)?.encoding ?? null
  const bitmap = await cameras.frame(question.block, encoding, question.step, question.isPlaying)
  return [bitmap, [bitmap]]
}

port.onmessage = ({ data: question }) => {
  answer(question).then(
    ([value, transfer]) => port.postMessage({ number: question.number, value }, transfer),
    (error: unknown) => port.postMessage({ number: question.number, problem: explain(error) }),
  )
}
