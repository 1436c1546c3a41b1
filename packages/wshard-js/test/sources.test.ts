/** If this fails, a short window reads the whole file, or a failing network is not reported. */

import assert from "node:assert/strict";
import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { pathToFileURL } from "node:url";

import {
  channel,
  encodeWShard,
  loadWShard,
  openHttp,
  openWShard,
  type EpisodeInit,
  type Source,
} from "../src/index.js";
import { bytesOf, contentOf, CountingSource, fullEpisode } from "./scenes.js";

function bigEpisode(): EpisodeInit {
  const observations = Object.fromEntries(
    Array.from({ length: 8 }, (_, number) => {
      const data = Uint8Array.from({ length: 1000 * 32 * (number + 1) }, (_, at) => (at * 2654435761) >>> 29);
      return [`c${number}`, channel(`c${number}`, data, [32, number + 1])];
    }),
  );
  return { id: "big", length: 1000, observations };
}

test("uncompressed windows read only their bytes", async () => {
  const source = new CountingSource((await encodeWShard(bigEpisode())).bytes);
  const file = await openWShard(source);
  assert.deepEqual(source.asked, [[0, 65536]], "the first request covers header, index and metadata");
  const reader = file.block("signal/c7");
  const window = await reader.window(500, 516);
  const { offset } = reader.entry;
  assert.deepEqual(source.asked.slice(1), [[offset + 500 * 256, offset + 516 * 256]]);
  assert.deepEqual(bytesOf(window), bytesOf(await reader.read()).subarray(500 * 256, 516 * 256));
  for (const [start, stop] of [
    [-1, 2],
    [3, 2],
    [0, 1001],
    [0.5, 2],
  ] as const) {
    await assert.rejects(reader.window(start, stop), { kind: "bad_input" });
  }
  assert.throws(() => file.block("signal/nothing"), { kind: "not_found" });
  await file.close();
  await assert.rejects(reader.read(), { kind: "bad_input", message: /closed/ });
});

test("windows of time chunks decode only their chunks", async () => {
  const { bytes } = await encodeWShard(bigEpisode(), { compression: "zstd", timeChunkSteps: 16 });
  const source = new CountingSource(bytes);
  const reader = (await openWShard(source)).block("signal/c7");
  assert.ok(reader.entry.isChunked);
  const whole = bytesOf(await (await openWShard(bytes)).block("signal/c7").read());
  assert.deepEqual(bytesOf(await reader.window(500, 516)), whole.subarray(500 * 256, 516 * 256));
  const read = source.asked.slice(1).reduce((sum, [start, end]) => sum + end - start, 0);
  assert.ok(read < reader.entry.storedBytes / 10);
});

test("a damaged chunk affects no other", async () => {
  const { bytes } = await encodeWShard(bigEpisode(), { compression: "zstd", timeChunkSteps: 16 });
  const { offset, storedBytes } = (await openWShard(bytes)).block("signal/c7").entry;
  const whole = bytesOf(await (await openWShard(bytes)).block("signal/c7").read()).slice();
  bytes[offset + Math.floor(storedBytes / 2)]! ^= 0x55;
  const reader = (await openWShard(bytes)).block("signal/c7");
  let bad = 0;
  for (let start = 0; start < 1000; start += 16) {
    const stop = Math.min(start + 16, 1000);
    try {
      assert.deepEqual(bytesOf(await reader.window(start, stop)), whole.subarray(start * 256, stop * 256));
    } catch (error) {
      assert.equal((error as { kind: string }).kind, "corrupt");
      bad++;
    }
  }
  assert.equal(bad, 1);
});

test("files, handles, blobs and buffers give the same episode", async () => {
  const folder = await mkdtemp(join(tmpdir(), "wshard-"));
  const path = join(folder, "a.wshard");
  const { bytes } = await encodeWShard(fullEpisode(), { compression: "lz4" });
  await writeFile(path, bytes);
  const handle = await open(path);
  try {
    const shifted = new Uint8Array(bytes.length + 3);
    shifted.set(bytes, 3);
    const sources: readonly Source[] = [
      path,
      pathToFileURL(path),
      handle,
      new Blob([bytes as Uint8Array<ArrayBuffer>]),
      bytes.slice().buffer,
      shifted.subarray(3),
      Buffer.from(bytes),
    ];
    for (const source of sources) {
      assert.deepStrictEqual(contentOf(await loadWShard(source)), contentOf(fullEpisode()));
    }
    assert.equal((await handle.stat()).size, bytes.length, "the handle stays open");
    await assert.rejects(loadWShard(join(folder, "nothing")), { kind: "object_not_found" });
    await assert.rejects(loadWShard(folder), { kind: /storage|corrupt/ });
    await assert.rejects(loadWShard({} as Source), { kind: "bad_input" });
  } finally {
    await handle.close();
    await rm(folder, { recursive: true });
  }
});

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

async function serving(answer: Answer, work: (url: string) => Promise<void>): Promise<void> {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await work(`http://127.0.0.1:${(server.address() as AddressInfo).port}/a.wshard`);
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

function ranges(bytes: Uint8Array, asked: string[], headers: () => Record<string, string> = () => ({})): Answer {
  return (request, response) => {
    asked.push(`${request.method} ${request.headers.range ?? ""}`);
    const [, first, last] = /bytes=(\d+)-(\d+)/.exec(request.headers.range ?? "") ?? [];
    if (first === undefined) {
      response.writeHead(200, { "content-length": bytes.length }).end();
      return;
    }
    const end = Math.min(Number(last) + 1, bytes.length);
    const told = { "content-range": `bytes ${first}-${end - 1}/${bytes.length}`, ...headers() };
    response.writeHead(206, told).end(bytes.subarray(Number(first), end));
  };
}

test("over HTTP, a window reads only its bytes", async () => {
  const { bytes } = await encodeWShard(bigEpisode());
  const asked: string[] = [];
  await serving(ranges(bytes, asked), async (url) => {
    const file = await openWShard(url);
    const window = await file.block("signal/c7").window(10, 20);
    assert.equal(window.data.length, 2560);
    assert.equal(asked.length, 2);
    assert.deepStrictEqual(contentOf(await loadWShard(new URL(url))), contentOf(await loadWShard(bytes)));
  });
});

test("over HTTP, a hidden size is requested, and a change is detected", async () => {
  const { bytes } = await encodeWShard(bigEpisode());
  const asked: string[] = [];
  await serving(
    ranges(bytes, asked, () => ({ "content-range": "" })),
    async (url) => {
      assert.equal((await openWShard(url)).header.totalBytes, bytes.length);
      assert.equal(asked[1], "HEAD ");
    },
  );
  let version = 0;
  await serving(
    ranges(bytes, asked, () => ({ etag: `"${version++}"` })),
    async (url) => {
      await assert.rejects(loadWShard(url), { kind: "storage", message: /changed/ });
    },
  );
});

const answers: readonly (readonly [number, Record<string, string>, string])[] = [
  [200, {}, "unsupported"],
  [404, {}, "object_not_found"],
  [403, {}, "access_denied"],
  [500, {}, "storage"],
  [416, { "content-range": "bytes */0" }, "corrupt"],
];

test("over HTTP, failures are typed errors", async () => {
  for (const [status, headers, kind] of answers) {
    await serving(
      (_, response) => void response.writeHead(status, headers).end("x".repeat(1000)),
      async (url) => {
        await assert.rejects(loadWShard(url), { kind });
      },
    );
  }
  await serving(
    (_, response) => void response.destroy(),
    async (url) => {
      await assert.rejects(loadWShard(url), { kind: "storage" });
    },
  );
});

test("over HTTP, the caller can pass headers and fetch", async () => {
  const { bytes } = await encodeWShard(fullEpisode());
  const seen: string[] = [];
  const source = await openHttp("https://example.invalid/a", {
    headers: { Authorization: "word" },
    fetch: async (_, { headers }) => {
      seen.push(headers["Authorization"] ?? "");
      const [, first, last] = /bytes=(\d+)-(\d+)/.exec(headers["Range"] ?? "")!;
      const part = bytes.slice(Number(first), Number(last) + 1);
      const told = new Headers({ "content-range": `bytes ${first}-${last}/${bytes.length}` });
      return { status: 206, headers: told, arrayBuffer: async () => part.buffer as ArrayBuffer };
    },
  });
  assert.deepStrictEqual(contentOf(await loadWShard(source)), contentOf(fullEpisode()));
  assert.ok(seen.length > 0 && seen.every((word) => word === "word"));
});
