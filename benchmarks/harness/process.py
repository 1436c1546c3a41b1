"""Processes that read on command: one line of JSON in, one line of JSON out.

Both sides of a comparison sit in processes of their own and wait for their turn, so that runs interleave
within one round, whichever libraries they need.
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
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.harness.timing import Timings

__all__ = ["Child", "per_reference", "reader"]

_CHECKOUT = Path(__file__).parents[2]


class Child:
    """Context manager around a process that obeys. What it says on the error stream is not shown."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_CHECKOUT,
            env={**os.environ, **environ},
            start_new_session=True,
        )

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Have it do something and wait for the answer."""
        self.tell(do, **arguments)
        return self.hear()

    def ask_within(self, patience_s: float, do: str, **arguments: Any) -> dict[str, Any]:
        """The same for those that may hang: then it is ended, and what it was asked has failed."""
        timer = threading.Timer(patience_s, self.kill)
        timer.start()
        try:
            return self.ask(do, **arguments)
        finally:
            timer.cancel()

    def tell(self, do: str, **arguments: Any) -> None:
        """Have it begin; `hear` waits."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "it ended without an answer"}
        if "error" in answer:
            raise RuntimeError(f"{self._process.args!r}: {answer['error']}")
        return answer

    def has_answered(self) -> bool:
        """Whether `hear` would return at once; also when the process has ended."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def kill(self) -> None:
        """With all processes it started, at once and without a word: as a machine that loses power."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def reader(environ: Mapping[str, str]) -> Child:
    """A process that reads with us."""
    return Child([sys.executable, "-m", "benchmarks.media.worker"], environ)


def per_reference(timings: Timings, counts: Mapping[str, int]) -> Timings:
    """Seconds for one reference, where arms read different numbers of them."""
    return Timings({arm: [took_s / counts[arm] for took_s in times] for arm, times in timings.by_arm.items()})
