"""If this fails, a slow command looks stuck, or progress appears in output that is not a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.scenes import PROGRAM, parquet, publish, run, trips
from warpdata.cli.progress import ProgressLine
from warpdata.primitives.progress import ProgressEvent


def read_all(descriptor: int) -> str:
    parts = []
    try:
        while part := os.read(descriptor, 65536):
            parts.append(part)
    except OSError:
        pass  # the program closed the terminal
    return b"".join(parts).decode()


def on_terminal(*args: str, **environment: str) -> tuple[int, str]:
    """Run with a terminal as stderr and return its output. Stdout is read late, so that a stream blocks."""
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, *args],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment},
    ) as program:
        os.close(terminal)
        assert program.stdout is not None
        time.sleep(2.5)
        program.stdout.read()
        shown = read_all(controller)
    os.close(controller)
    return program.returncode, shown


def test_errors_are_coloured_on_terminal() -> None:
    code, shown = on_terminal("info", "acme/nothing")
    assert code == 3
    assert "\x1b[31m\x1b[1merror: \x1b[0macme/nothing" in shown
    assert "\x1b[36m\x1b[1mhint: " in shown


def test_slow_command_shows_line_and_erases_it() -> None:
    publish("acme/long", trips(count=400_000))
    code, shown = on_terminal("stream", "acme/long", "--batch-size", "5000")
    assert code == 0
    assert "Streaming acme/long" in shown
    assert "of 400 k rows" in shown
    assert shown.rstrip().endswith("\x1b[2K") or "\x1b[?25h" in shown
    quiet_code, quiet = on_terminal("stream", "acme/long", "--batch-size", "5000", "--quiet")
    assert (quiet_code, quiet) == (0, "")


def test_fast_command_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with ProgressLine("Working", is_visible=True) as progress:
        progress(ProgressEvent("upload", 1, 2, 1, 2))
    assert capfd.readouterr() == ("", "")


def test_line_shows_stage_total_and_rate(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with ProgressLine("Working", is_visible=True, delay_s=0.0) as progress:
        time.sleep(0.3)
        progress(ProgressEvent("hash", 0, 10_000_000, 0, 2))
        time.sleep(1.1)
        progress(ProgressEvent("hash", 5_000_000, 10_000_000, 1, 2))
        time.sleep(0.3)
    shown = capfd.readouterr().err
    assert "Working" in shown
    assert "Reading files 1 of 2" in shown
    assert "━━━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌" in shown
    assert "5.00 MB of 10.0 MB" in shown
    assert "/s, " in shown


def test_no_progress_without_terminal(tmp_path: Path) -> None:
    path = parquet(tmp_path, table=trips(count=100_000))
    result = run("publish", "acme/trips", "--table", f"main={path}")
    assert (result.exit_code, result.stderr) == (0, "")
