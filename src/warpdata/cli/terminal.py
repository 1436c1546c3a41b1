"""All text that `warp` writes to stdout and stderr passes through here.

A dataset carries text of its author. An escape sequence in it could control the terminal of a reader, so every
character that is not printable is written as its escape, such as `\\x1b` or `\\u202e`. Only line feeds stay. Bytes
that a command writes as data (`cat`, `stream`) are not changed in a pipe or a file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import click

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

__all__ = [
    "Sink",
    "TerminalSink",
    "clear_error_line",
    "data_sink",
    "escape",
    "escape_json",
    "escape_lines",
    "is_json",
    "mute_warnings",
    "show_warnings",
    "write_data_line",
    "write_error",
    "write_rendered",
    "write_text",
]


def escape(text: str) -> str:
    """Escape every character that is not printable, including line breaks."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in text
    )


def escape_lines(text: str) -> str:
    """Escape every character that is not printable, except line feeds."""
    return text if text.isprintable() else "\n".join(map(escape, text.split("\n")))


def escape_json(encoded: bytes) -> bytes:
    """Escape characters that are not printable in a JSON text. The document keeps its value."""
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded  # JSON has no raw control characters below a space
    return "\n".join(map(_escape_json_line, encoded.decode().split("\n"))).encode()


def _escape_json_line(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else _json_escapes(char) for char in line)


def _json_escapes(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def is_json() -> bool:
    """Return whether the running command has `--json`. Notes and messages for people are then omitted."""
    context = click.get_current_context(silent=True)
    return bool(context is not None and getattr(context.obj, "as_json", False))


def write_text(text: str) -> None:
    """Write lines to stdout, such as a help page or a generated script. A line feed is added if it is missing."""
    click.echo(escape_lines(text), nl=not text.endswith("\n"))


def write_data_line(text: str) -> None:
    """Write one line to stdout without wrapping it."""
    click.echo(escape(text))


def write_error(text: str, label: str = "", colour: str | None = None, *, dim: bool = False) -> None:
    """Write lines to stderr. Further lines are indented, so that foreign text cannot imitate a label."""
    body = escape_lines(text).replace("\n", "\n  ")
    if label:
        click.echo(click.style(f"{label}: ", fg=colour, bold=True) + body, err=True)
    else:
        click.echo(click.style(body, fg=colour, bold=colour is not None, dim=dim), err=True)


_is_muted = False


def mute_warnings() -> None:
    """Write no more warnings: an interrupt makes fetches fail in other threads, and is their explanation."""
    global _is_muted  # noqa: PLW0603 - one terminal for the process
    _is_muted = True


def show_warnings() -> None:
    """Write the warnings that the library logs to stderr, except with `--json`. Idempotent."""
    import logging

    class TerminalHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not _is_muted and not is_json():
                write_error(record.getMessage(), record.levelname.lower(), "yellow")

    logger = logging.getLogger("warpdata")
    if not logger.handlers:
        logger.addHandler(TerminalHandler(logging.WARNING))


def clear_error_line() -> None:
    """Erase a progress line and show the cursor, if stderr is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[2K\x1b[?25h")


def write_rendered(out: Console, renderable: Any, *, style: str = "", soft_wrap: bool = False) -> None:
    """Render with rich and write to stdout. The text is captured first, because rich exits on a closed pipe."""
    with out.capture() as captured:
        out.print(_Escaped(renderable), style=style or None, soft_wrap=soft_wrap)
    text = captured.get()
    sys.stdout.write(text if out.is_terminal else _strip_ends(text))


def _strip_ends(text: str) -> str:
    """Remove the spaces at the ends of lines, with which rich fills columns."""
    return "\n".join(line.rstrip(" ") for line in text.split("\n"))


class _Escaped:
    """A renderable whose text is escaped after rendering, when styles are no longer part of the text."""

    def __init__(self, renderable: Any) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for segment in console.render(self._renderable, options):
            if not segment.control:
                yield Segment(escape_lines(segment.text), segment.style)


class Sink(Protocol):
    """The part of a binary file that writers of rows use."""

    def write(self, data: bytes | memoryview, /) -> int: ...

    def flush(self) -> None: ...


class TerminalSink:
    """A binary sink for a terminal. Text is escaped, except line feeds and tabs."""

    def __init__(self, raw: BinaryIO) -> None:
        self.raw = raw

    def write(self, data: bytes | memoryview, /) -> int:
        lines = bytes(data).decode("utf-8", "backslashreplace").split("\n")
        self.raw.write("\n".join("\t".join(map(escape, line.split("\t"))) for line in lines).encode())
        return len(data)

    def flush(self) -> None:
        self.raw.flush()


def data_sink() -> Sink:
    """Return stdout for rows. Text is escaped only if stdout is a terminal."""
    return TerminalSink(sys.stdout.buffer) if sys.stdout.isatty() else sys.stdout.buffer
