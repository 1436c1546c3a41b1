/** If this fails, the first example that users try does not work. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));

const PACKAGE = join(HERE, "../..");
const OPTIONS = [
  "--noEmit",
  "--strict",
  "--target",
  "es2022",
  "--module",
  "nodenext",
  "--types",
  "node",
  "--ignoreConfig",
];

test("the examples of the README type-check, and the first one runs", () => {
  const readme = readFileSync(join(PACKAGE, "README.md"), "utf8");
  const [code, viewer] = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)].map((found) => found[1]!);
  assert.ok(code !== undefined && viewer !== undefined);
  // Inside the package, so that its own name resolves to it.
  const [typed, plain] = [join(HERE, "readme-example.mts"), join(HERE, "readme-example.mjs")];
  // It needs a server and a browser; test_browser.py of the project draws frames in one.
  const shown = join(HERE, "readme-viewer.mts");
  const folder = mkdtempSync(join(tmpdir(), "wshard-"));
  try {
    writeFileSync(typed, code);
    writeFileSync(plain, code);
    writeFileSync(shown, viewer);
    const compiler = join(PACKAGE, "node_modules/typescript/bin/tsc");
    const checked = spawnSync(process.execPath, [compiler, ...OPTIONS, typed, shown], { encoding: "utf8", cwd: PACKAGE });
    assert.equal(checked.status, 0, checked.stdout);
    const child = spawnSync(process.execPath, [plain], { cwd: folder, encoding: "utf8" });
    assert.equal(child.status, 0, child.stderr);
    assert.deepEqual(readdirSync(folder).sort(), ["ep_000.wshard", "ep_001.wshard", "ep_002.wshard"]);
    assert.match(child.stdout, /ep_000 100 \[ 100, 7 \]\nf32 \[ 16, 7 \] 0\n[0-9a-f]{64}\n/);
  } finally {
    rmSync(folder, { recursive: true });
    [typed, plain, shown].forEach((path) => rmSync(path, { force: true }));
  }
});
