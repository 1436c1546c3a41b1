"""The built TypeScript library."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.formats.wshard.drivers import run
from tests.formats.wshard.scenes import ROOT

__all__ = ["NODE", "PACKAGE", "build", "translated"]

PACKAGE = ROOT / "packages" / "wshard-js"
NODE = shutil.which("node") or ""
INSTALL_S, BUILD_S = 60, 60
INSTALL = ("install", "--no-package-lock", "--no-audit", "--no-fund", "--fetch-retries=0", "--fetch-timeout=15000")
OLDEST_NODE = 20


def has_packages() -> bool:
    """Return whether exactly the required packages are installed."""
    wanted = json.loads((PACKAGE / "package.json").read_text())
    for name, version in {**wanted["dependencies"], **wanted["devDependencies"]}.items():
        found = PACKAGE / "node_modules" / name / "package.json"
        if not found.is_file() or json.loads(found.read_text())["version"] != version:
            return False
    return True


def build(target: Path) -> str | None:
    """Build the library into an empty directory. Return the reason if that is not possible."""
    npm = shutil.which("npm")
    if not NODE:
        return "node is not installed"
    version = run([NODE, "--version"], BUILD_S, target)[1].strip()
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        return f"node {version} is older than {OLDEST_NODE}"
    for name in ("package.json", "tsconfig.json", "README.md"):
        shutil.copy(PACKAGE / name, target / name)
    for name in ("src", "test"):
        shutil.copytree(PACKAGE / name, target / name)
    if has_packages():
        (target / "node_modules").symlink_to(PACKAGE / "node_modules")
    elif npm is None:
        return "npm is not installed"
    else:
        try:
            code, output = run([npm, *INSTALL], INSTALL_S, target)
        except subprocess.TimeoutExpired:
            return "npm does not answer"
        if code:
            reason = next((line for line in output.splitlines() if line.startswith("npm error")), "no reason given")
            return f"npm cannot install the packages: {reason}"
    code, output = run([NODE, str(target / "node_modules" / "typescript" / "bin" / "tsc")], BUILD_S, target)
    assert code == 0, output
    return None


def translated(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of `save_wshard` in camel case. The library does not write levels of lz4."""
    spelled = {"per_block": "perBlock", "time_chunk_steps": "timeChunkSteps"}
    usable = {**options, **({"compression": "lz4"} if options.get("compression") == ("lz4", 9) else {})}
    return {spelled.get(key, key): value for key, value in usable.items()}
