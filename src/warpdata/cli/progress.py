"""A progress line on stderr, erased at the end.

The line appears after half a second, and only if stderr is a terminal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from warpdata.cli.format import bytes_text, rows_text, seconds_text
from warpdata.cli.terminal import escape

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.progress import Progress, TaskID

    from warpdata.primitives.progress import ProgressEvent

__all__ = ["ProgressLine"]

_DELAY_S = 0.5
_BAR_WIDTH = 24
_STAGES = {
    "hash": "Reading files",
    "upload": "Uploading",
    "copy": "Copying",
    "verify": "Verifying",
    "warm": "Downloading",
    "list": "Listing blobs",
    "wait": "Waiting for publishes",
    "delete": "Deleting",
    "export": "Exporting",
    "rows": "Computing",
}


class ProgressLine:
    """A spinner that becomes a bar once the total is known. Thread-safe."""

    def __init__(self, title: str, *, is_visible: bool, delay_s: float = _DELAY_S) -> None:
        self._title = escape(title)
        self._lock = threading.Lock()
        self._timer = threading.Timer(delay_s, self._show) if is_visible else None
        self._shown: tuple[Progress, TaskID] | None = None
        self._done, self._total = 0, 0
        self._text: Callable[[float], str] = bytes_text
        self._stage, self._began = "", time.monotonic()

    def __enter__(self) -> Self:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._shown is not None:
                self._shown[0].stop()

    def __call__(self, event: ProgressEvent) -> None:
        """Show an event of publish, edit, verify or warm."""
        title = _STAGES.get(event.stage, event.stage)
        if event.total_files > 1:
            title = f"{title} {event.done_files:,} of {event.total_files:,}"
        if event.stage != self._stage:
            self._text = rows_text if event.stage == "rows" else bytes_text
            self._stage, self._began = event.stage, time.monotonic()
        self._update(escape(title), event.done_bytes, event.total_bytes)

    def count_rows(self, batches: Iterable[pa.RecordBatch], total: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches and count their rows. A `total` of 0 means unknown."""
        self._text, self._began = rows_text, time.monotonic()
        done = 0
        for batch in batches:
            yield batch
            done += batch.num_rows
            self._update(self._title, done, total)

    def count_bytes(self, total: int) -> Callable[[int], None]:
        """Return a function that adds bytes to the count. A `total` of 0 means unknown."""
        self._began = time.monotonic()

        def add(size_bytes: int) -> None:
            self._update(self._title, self._done + size_bytes, total)

        return add

    def _update(self, title: str, done: int, total: int) -> None:
        with self._lock:
            self._title, self._done, self._total = title, done, total
            self._refresh()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn

        with self._lock:
            if self._timer is None:
                return
            columns = (
                SpinnerColumn(style="cyan"),
                TextColumn("{task.description}", markup=False),
                TextColumn("{task.fields[bar]}", style="cyan", markup=False),
                TextColumn("{task.fields[counts]}", style="dim", markup=False),
            )
            progress = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
            self._shown = progress, progress.add_task(self._title, total=None, bar="", counts="")
            self._refresh()
            progress.start()

    def _refresh(self) -> None:
        """Redraw the line. The caller holds the lock."""
        if self._shown is not None:
            progress, task = self._shown
            progress.update(task, description=self._title, bar=_bar(self._done, self._total), counts=self._counts())

    def _counts(self) -> str:
        if not self._done:
            return ""
        done = f"{self._text(self._done)} of {self._text(self._total)}" if self._total else self._text(self._done)
        elapsed_s = time.monotonic() - self._began
        if elapsed_s < 1:
            return done
        rate = self._done / elapsed_s
        left = f", {seconds_text((self._total - self._done) / rate)} left" if self._total > self._done else ""
        return f"{done}, {self._text(rate)}/s{left}"


def _bar(done: int, total: int) -> str:
    filled = round(_BAR_WIDTH * min(done / total, 1)) if total else 0
    return "━" * filled + "╌" * (_BAR_WIDTH - filled) if total else ""
