"""What goes to stdout for people (tables and facts) and for programs (one JSON document).

Colour and width follow the terminal; without one, output is plain and wide.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.format import cell_text, escape, plain_values, to_json, type_text

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "console",
    "fit_widths",
    "make_table",
    "note",
    "print_facts",
    "print_json",
    "print_line",
    "print_rows",
    "print_table",
    "show",
]

_PLAIN_WIDTH = 120


def console() -> Console:
    """A console on stdout that takes text literally: nothing from a dataset is read as markup."""
    from rich.console import Console

    made = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _PLAIN_WIDTH
    return made


def show(renderable: Any, *, style: str = "", soft_wrap: bool = False) -> None:
    """Print to stdout. Rich would exit by itself when the reader of a pipe is gone; `warp` has its own way."""
    out = console()
    with out.capture() as captured:
        out.print(renderable, style=style or None, soft_wrap=soft_wrap)
    sys.stdout.write(captured.get())


def print_json(document: Any) -> None:
    click.echo(to_json(document, indent=2))


def print_line(text: str = "", style: str = "") -> None:
    show(text, style=style, soft_wrap=True)


def print_facts(facts: Mapping[str, Any]) -> None:
    """One fact a line, its name dim on the left; None is left out."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts.items():
        if value is not None:
            grid.add_row(name, value if isinstance(value, Text) else Text(escape(str(value))))
    show(grid)


def make_table(*columns: str) -> Table:
    """A calm table. A column whose name starts with ">" is right-aligned."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), border_style="dim")
    table.header_style = "dim"
    for name in columns:
        table.add_column(
            name.removeprefix(">"), justify="right" if name.startswith(">") else "left", overflow="ellipsis"
        )
    return table


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from rich.text import Text

    table = make_table(*columns)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(escape(str(cell))) for cell in row))
    show(table)


def note(text: str) -> None:
    """A word beside the data, on stderr."""
    click.echo(click.style(text, dim=True), err=True)


_GAP = 2
_WIDEST = 48
_NARROWEST = 12
_WIDEST_TYPE = 16
_NAMED_LEFT_OUT = 8


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    kind: str
    cells: tuple[str, ...]
    is_number: bool

    @property
    def width(self) -> int:
        from rich.cells import cell_len

        return max(*map(cell_len, (self.name, *self.cells)), min(cell_len(self.kind), _WIDEST_TYPE))


def fit_widths(wanted: Sequence[tuple[int, bool]], available: int) -> list[int]:
    """How wide each column may be, given its natural width and whether it may be cut.

    Columns are narrowed first, the widest ones most. If that is not enough they are left out from the
    right: fewer widths than columns come back.
    """
    for shown in range(len(wanted), 1, -1):
        widths = _narrow(wanted[:shown], available - _GAP * (shown - 1))
        if widths is not None:
            return widths
    return [min(wanted[0][0], max(available, _NARROWEST))] if wanted else []


def print_rows(rows: pa.Table) -> None:
    """Print; a header line names the columns, one below it their types."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    columns = _columns(rows)
    widths = fit_widths([(column.width, not column.is_number) for column in columns], console().width)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, border_style="dim", padding=(0, _GAP - 1, 0, 0))
    for column, width in zip(columns, widths, strict=False):
        head = Text.assemble((column.name, "bold"), "\n", (column.kind, "dim"), overflow="ellipsis", no_wrap=True)
        justify = "right" if column.is_number else "left"
        table.add_column(head, width=width, no_wrap=True, overflow="ellipsis", justify=justify)  # type: ignore[arg-type]
    for position in range(rows.num_rows):
        table.add_row(*(_cell(column.cells[position]) for column in columns[: len(widths)]))
    show(table)
    left_out = [column.name for column in columns[len(widths) :]]
    if left_out:
        named = ", ".join(left_out[:_NAMED_LEFT_OUT]) + (", …" if len(left_out) > _NAMED_LEFT_OUT else "")
        print_line(f"… and {len(left_out):,} more columns: {named}", style="dim")


def _narrow(wanted: Sequence[tuple[int, bool]], available: int) -> list[int] | None:
    """The least narrowing that fits, or None if even the narrowest does not."""
    for widest in range(_WIDEST, _NARROWEST - 1, -1):
        widths = [min(width, widest) if can_be_cut else width for width, can_be_cut in wanted]
        if sum(widths) <= available:
            return widths
    return None


def _columns(rows: pa.Table) -> list[_Column]:
    import pyarrow as pa

    found = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        kind = field.type
        texts = tuple(cell_text(value) for value in plain_values(column))
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        found.append(_Column(escape(field.name), type_text(kind), texts, is_number))
    return found


def _cell(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="dim" if text == "null" else "", overflow="ellipsis", no_wrap=True)
