"""Worker processes that read on command, one line of JSON each way, and wait for their turn in between.

Each side of a comparison has a process of its own, so that rounds interleave libraries that cannot share one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.harness.data import DATA, make_once
from benchmarks.harness.timing import RunOptions

__all__ = ["CHECKOUT", "Worker", "create_environment"]

CHECKOUT = Path(__file__).parents[2]


class Worker:
    """Context manager around a worker process. Its error stream is discarded."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=CHECKOUT,
            env={**os.environ, **environ},
            start_new_session=True,
        )

    def call(self, method: str, *, timeout_s: float | None = None, **arguments: Any) -> dict[str, Any]:
        """Run a command and wait for the answer; kill a process that exceeds the timeout."""
        timer = threading.Timer(timeout_s, self.kill) if timeout_s is not None else None
        if timer is not None:
            timer.start()
        try:
            self.send(method, **arguments)
            return self.receive()
        finally:
            if timer is not None:
                timer.cancel()

    def send(self, method: str, **arguments: Any) -> None:
        """Start a command; `receive` waits for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"method": method, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the process ended without an answer"}
        if "error" in answer:
            module = next((part for part in map(str, self._process.args) if part.startswith("benchmarks.")), "worker")  # type: ignore[arg-type]
            raise RuntimeError(f"{module}: {answer['error']}")
        return answer

    def has_answered(self) -> bool:
        """Return whether `receive` would return at once, also because the process has ended."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def kill(self) -> None:
        """Send SIGKILL to the process and all processes that it started, as a power failure would end them."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def create_environment(name: str, installs: Sequence[Sequence[str]], options: RunOptions) -> Path | None:
    """Return the interpreter of a virtual environment for peers, created on the first use.

    Each element of `installs` is the argument list of one `pip install`. A smoke run installs nothing. Return None
    if the environment does not exist and cannot be created.
    """
    python = DATA / name / "bin" / "python"
    if not python.exists() and not options.is_smoke:
        try:
            make_once(name, partial(_install, installs))
        except subprocess.CalledProcessError as error:
            print(f"({error})", file=sys.stderr)
    return python if python.exists() else None


def _install(installs: Sequence[Sequence[str]], directory: Path) -> None:
    run = partial(subprocess.run, check=True, stdout=subprocess.DEVNULL)
    run([sys.executable, "-m", "venv", str(directory)])
    pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    for arguments in installs:
        run([*pip, *arguments])
