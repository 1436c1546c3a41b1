"""What goes to stdout for people (tables and facts) and for programs (one JSON document).

Colour and width follow the terminal; without one, output is plain and wide.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.values import escape, to_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["console", "make_table", "note", "print_facts", "print_json", "print_line", "print_table", "show"]

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
