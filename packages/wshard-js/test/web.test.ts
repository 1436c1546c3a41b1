/** If this fails, a page that reads episodes does not load. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import test from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

import { encodeWShard, identity } from "../src/index.js";
import { fullEpisode } from "./scenes.js";

const SOURCE = join(dirname(fileURLToPath(import.meta.url)), "../src");

test("only the modules for Node import anything of Node", () => {
  for (const name of readdirSync(SOURCE).filter((name) => name.endsWith(".js"))) {
    const text = readFileSync(join(SOURCE, name), "utf8");
    const isForNode = name === "platform-node.js" || name === "platform-journal.js";
    assert.equal(/from "node:|import\("node:|require\(/.test(text), isForNode, name);
    assert.ok(isForNode || !/\b(process|Buffer|global|__dirname)\b\./.test(text), name);
  }
});

test("episodes are read, written and hashed with the platform of a browser", async () => {
  const { bytes } = await encodeWShard(fullEpisode(), { compression: "zstd", timeChunkSteps: 7, seal: true });
  const hook = `export const resolve = (name, context, next) => name === "#platform"
    ? { url: ${JSON.stringify(pathToFileURL(join(SOURCE, "platform-web.js")).href)}, shortCircuit: true } : next(name, context);`;
  const script = `
    import { register } from "node:module";
    import { readFileSync } from "node:fs";
    register("data:text/javascript," + encodeURIComponent(${JSON.stringify(hook)}));
    const print = console.log;
    const data = new Blob([readFileSync(0)]);
    const wshard = await import(${JSON.stringify(pathToFileURL(join(SOURCE, "index.js")).href)});
    const episode = await wshard.loadWShard(data);
    const again = await wshard.encodeWShard(episode, { compression: "lz4", seal: true });
    const refusal = await wshard.saveWShard(episode, "a.wshard").catch((error) => error.kind);
    print(JSON.stringify([await wshard.identity(data), again.identity, refusal, episode.length]));
  `;
  const child = spawnSync(globalThis.process.execPath, ["--input-type=module", "--eval", script], {
    input: bytes,
    encoding: "utf8",
  });
  assert.equal(child.status, 0, child.stderr);
  const named = await identity(bytes);
  assert.deepEqual(JSON.parse(child.stdout), [named, named, "unsupported", 40]);
});
