"""Short text and HTML for notebooks: the tensors of a set, of a view, or of a result.

Names of tensors come from files, so HTML escapes them and text shows them by `repr`. Both are bounded, however many
tensors there are.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from warpdata.formats.tensors.index import TensorEntry

__all__ = ["clip_name", "list_names", "table_rows", "tensor_table"]

_MAX_NAMES = 4
_MAX_NAME_LENGTH = 60
_MAX_ROWS = 50


def list_names(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    shown = ", ".join(repr(clip_name(name)) for name in names[:_MAX_NAMES])
    more = len(names) - _MAX_NAMES
    return f"[{shown}, … {more:,} more]" if more > 0 else f"[{shown}]"


def tensor_table(title: str, tensors: Iterable[tuple[str, str, Sequence[int], int]], count: int) -> str:
    """Return an HTML table of (name, type, shape, bytes), at most 50 rows, with the number of the others."""
    rows = "".join(
        f"<tr><td>{html.escape(clip_name(name))}</td><td>{html.escape(kind)}</td>"
        f"<td>{_shape_text(shape)}</td><td style='text-align:right'>{size:,}</td></tr>"
        for name, kind, shape, size in islice(tensors, _MAX_ROWS)
    )
    more = f"<p>… {count - _MAX_ROWS:,} more</p>" if count > _MAX_ROWS else ""
    head = "<tr><th>tensor</th><th>type</th><th>shape</th><th>bytes</th></tr>"
    return f"<p><b>{html.escape(title)}</b></p><table><thead>{head}</thead><tbody>{rows}</tbody></table>{more}"


def clip_name(name: str) -> str:
    """Return the begin of a long name."""
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[: _MAX_NAME_LENGTH - 1]}…"


def table_rows(entries: Iterable[TensorEntry]) -> Iterator[tuple[str, str, Sequence[int], int]]:
    """Yield the rows of `tensor_table` for tensors of an index."""
    for entry in entries:
        yield entry.name, entry.dtype.name, entry.shape, entry.byte_size


def _shape_text(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "scalar"
