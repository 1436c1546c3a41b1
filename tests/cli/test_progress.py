"""If this fails, long work looks stuck, or progress gets into places where nobody can see it."""

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
        pass  # a terminal whose other side is gone
    return b"".join(parts).decode()


def on_terminal(*args: str, **environment: str) -> tuple[int, str]:
    """Run with a terminal as stderr, and say what it showed. Data on stdout is read late, so that a stream waits."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, *args],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment},
    ) as program:
        os.close(theirs)
        assert program.stdout is not None
        time.sleep(2.5)
        program.stdout.read()
        shown = read_all(ours)
    os.close(ours)
    return program.returncode, shown


def test_errors_are_coloured_on_a_terminal() -> None:
    code, shown = on_terminal("info", "acme/nothing")
    assert code == 3
    assert "\x1b[31m\x1b[1merror: \x1b[0macme/nothing" in shown
    assert "\x1b[36m\x1b[1mhint: " in shown


def test_long_work_shows_a_line_that_goes_away() -> None:
    publish("acme/long", trips(count=400_000))
    code, shown = on_terminal("stream", "acme/long", "--batch-size", "5000")
    assert code == 0
    assert "Streaming acme/long" in shown
    assert "of 400 k rows" in shown
    assert shown.rstrip().endswith("\x1b[2K") or "\x1b[?25h" in shown
    quiet_code, quiet = on_terminal("stream", "acme/long", "--batch-size", "5000", "--quiet")
    assert (quiet_code, quiet) == (0, "")


def test_quick_work_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with ProgressLine("Working", is_visible=True) as progress:
        progress(ProgressEvent("upload", 1, 2, 1, 2))
    assert capfd.readouterr() == ("", "")


def test_stages_totals_and_rates_are_told(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_without_a_terminal_there_is_no_progress(tmp_path: Path) -> None:
    path = parquet(tmp_path, table=trips(count=100_000))
    result = run("publish", "acme/trips", "--table", f"main={path}")
    assert (result.exit_code, result.stderr) == (0, "")
