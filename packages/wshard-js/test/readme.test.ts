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

test("the example of the README type-checks and runs", () => {
  const readme = readFileSync(join(PACKAGE, "README.md"), "utf8");
  const code = /```ts\n([\s\S]*?)```/.exec(readme)?.[1];
  assert.ok(code);
  // Inside the package, so that its own name resolves to it.
  const [typed, plain] = [join(HERE, "readme-example.mts"), join(HERE, "readme-example.mjs")];
  const folder = mkdtempSync(join(tmpdir(), "wshard-"));
  try {
    writeFileSync(typed, code);
    writeFileSync(plain, code);
    const compiler = join(PACKAGE, "node_modules/typescript/bin/tsc");
    const checked = spawnSync(process.execPath, [compiler, ...OPTIONS, typed], { encoding: "utf8", cwd: PACKAGE });
    assert.equal(checked.status, 0, checked.stdout);
    const child = spawnSync(process.execPath, [plain], { cwd: folder, encoding: "utf8" });
    assert.equal(child.status, 0, child.stderr);
    assert.deepEqual(readdirSync(folder).sort(), ["ep_000.wshard", "ep_001.wshard", "ep_002.wshard"]);
    assert.match(child.stdout, /ep_000 100 \[ 100, 7 \]\nf32 \[ 16, 7 \] 0\n[0-9a-f]{64}\n/);
  } finally {
    rmSync(folder, { recursive: true });
    [typed, plain].forEach((path) => rmSync(path, { force: true }));
  }
});
