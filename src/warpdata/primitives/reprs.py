"""Short representations of objects, as text and as HTML for notebooks. Pure.

Names and values come from files and stores, so text is escaped and every part has a bound.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

__all__ = ["HtmlImage", "html_image", "html_table", "short_repr", "shorten"]

_PART_CHARS = 60
_CELL_CHARS = 80
_LISTED = 4


@dataclass(frozen=True, slots=True)
class HtmlImage:
    """A cell of `html_table` that shows a PNG image."""

    png: bytes


def short_repr(kind: str, /, *values: object, **fields: object) -> str:
    """Return `kind(value, field=…)`. Long values are shortened, and fields that are None are left out."""
    parts = [_part(value) for value in values]
    parts += [f"{name}={_part(value)}" for name, value in fields.items() if value is not None]
    return f"{kind}({', '.join(parts)})"


def shorten(text: str, limit: int = _PART_CHARS) -> str:
    """Return the text, or its beginning and an ellipsis."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def html_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, notes: Sequence[str] = ()
) -> str:
    """Return a heading, a table of text, and lines below it. `title`, cells and notes are escaped."""
    head = "".join(f"<th>{_cell(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if columns else ""
    below = "".join(f"<p>{_cell(note, 400)}</p>" for note in notes)
    return f"<div><p><b>{_cell(title, 400)}</b></p>{table}{below}</div>"


def html_image(title: str, png: str) -> str:
    """Return an image of base64 PNG data with a caption."""
    return f'<div><img src="data:image/png;base64,{png}" alt=""/><p>{_cell(title, 400)}</p></div>'


def _part(value: object) -> str:
    if not isinstance(value, list | tuple):
        return shorten(repr(value))
    shown = [shorten(repr(item)) for item in value[:_LISTED]]
    more = [f"… {len(value) - _LISTED} more"] if len(value) > _LISTED else []
    inside = ", ".join([*shown, *more])
    return f"[{inside}]" if isinstance(value, list) else f"({inside})"


def _cell(value: Any, limit: int = _CELL_CHARS) -> str:
    if isinstance(value, HtmlImage):
        return f'<img src="data:image/png;base64,{b64encode(value.png).decode("ascii")}" alt=""/>'
    text = value if isinstance(value, str) else f"{value:,}" if type(value) is int else repr(value)
    printable = "".join(char if char.isprintable() else " " for char in shorten(text, limit))
    return escape(printable)
