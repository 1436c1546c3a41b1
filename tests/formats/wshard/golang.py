"""The built Go library: its driver, its command, and the environment of the compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.formats.wshard.drivers import run
from tests.formats.wshard.scenes import ROOT

__all__ = ["GO", "PACKAGE", "build_go", "go_environment"]

PACKAGE = ROOT / "packages" / "wshard-go"
GO = shutil.which("go") or ""
BUILD_S = 50
"""A build takes a few seconds."""
OLDEST_GO = (1, 19)
DEBIAN_SOURCES = Path("/usr/share/gocode")
"""Libraries of Debian packages, which need no network."""


def go_environment(target: Path) -> dict[str, str]:
    """Return variables to compile the copy of the package in `target/src/wshard`."""
    if (DEBIAN_SOURCES / "src/github.com/klauspost/compress/zstd").is_dir():
        return {"GO111MODULE": "off", "GOPATH": f"{target}{os.pathsep}{DEBIAN_SOURCES}", "GOFLAGS": ""}
    return {"GO111MODULE": "on", "GOFLAGS": "-mod=mod"}


def build_go(target: Path) -> str | None:
    """Build the library into an empty directory. Return the reason if that is not possible."""
    if not GO:
        return "go is not installed"
    version = run([GO, "env", "GOVERSION"], BUILD_S, target)[1].strip()
    if tuple(int(part) for part in version.removeprefix("go").split(".")[:2]) < OLDEST_GO:
        return f"{version} is older than go{'.'.join(map(str, OLDEST_GO))}"
    source = target / "src" / "wshard"
    shutil.copytree(PACKAGE, source)
    environment = go_environment(target)
    if environment["GO111MODULE"] == "on":
        code, output = run([GO, "mod", "download"], BUILD_S, source, **environment)
        if code:
            return f"the Go modules cannot be fetched: {output.splitlines()[-1:]}"
    for name, package in (("driver", "./internal/driver"), ("wshard", "./cmd/wshard")):
        try:
            code, output = run([GO, "build", "-o", str(target / name), package], BUILD_S, source, **environment)
        except subprocess.TimeoutExpired:
            return f"the Go compiler did not finish in {BUILD_S} s"
        assert code == 0, output
    return None
