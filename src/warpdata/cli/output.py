"""Output on stdout: tables, rows and facts for people, one JSON document for programs.

Colour and width follow the terminal. Without a terminal, output is plain, rows of data are 120 columns wide, and
lists are as wide as their text.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.cli.format import cell_text, plain_values, to_json, type_text
from warpdata.cli.terminal import escape, is_json, write_error, write_rendered, write_text

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

_DEFAULT_WIDTH = 120
_GAP = 2
_MIN_COLUMN_WIDTH, _MAX_COLUMN_WIDTH = 12, 48
_MAX_TYPE_WIDTH = 16
_NAMED_COLUMNS = 8
_MIN_FACT_WIDTH = 20
_MAX_WORD_WIDTH = 32
"""Longer words, such as paths, may be broken. A shortened hash is not."""


def console() -> Console:
    """Return a console on stdout that interprets no markup, because text may come from a dataset."""
    from rich.console import Console

    made = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _DEFAULT_WIDTH
    return made


def show(renderable: Any, *, style: str = "", soft_wrap: bool = False) -> None:
    write_rendered(console(), renderable, style=style, soft_wrap=soft_wrap)


def print_json(document: Any) -> None:
    write_text(to_json(document, indent=2).decode())


def print_line(text: str = "", style: str = "") -> None:
    """Print one line. Line breaks in the text are escaped."""
    show(escape(text), style=style, soft_wrap=True)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print one fact per line, its name on the left. Facts that are None are skipped.

    On a narrow terminal, the values are below their names. Long values wrap.
    """
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    shown = {
        escape(name): value if isinstance(value, Text) else Text(escape(str(value)))
        for name, value in facts.items()
        if value is not None
    }
    out = console()
    grid = Table.grid(padding=(0, _GAP))
    if out.width < max(map(_cell_length, shown), default=0) + _GAP + _MIN_FACT_WIDTH:
        grid.add_column(overflow="fold")
        for name, value in shown.items():
            if name:
                grid.add_row(Text(name, style="dim"))
            grid.add_row(Padding(value, (0, 0, 0, _GAP)))
    else:
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in shown.items():
            grid.add_row(name, value)
    write_rendered(out, grid)


def make_table(*columns: str) -> Table:
    """Return an empty table. A column name that starts with ">" is right-aligned."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0), border_style="dim")
    table.header_style = "dim"
    for name in columns:
        justify = "right" if name.startswith(">") else "left"
        table.add_column(escape(name.removeprefix(">")), justify=justify, overflow="fold")  # type: ignore[arg-type]
    return table


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows under their headings. Nothing is cut.

    On a narrow terminal, text wraps between words. If even words do not fit side by side, each row becomes a
    list of facts.
    """
    from rich.text import Text

    cells = [[cell if isinstance(cell, Text) else Text(escape(str(cell))) for cell in row] for row in rows]
    headings = [escape(name.removeprefix(">")) for name in columns]
    texts = [[heading, *(row[place].plain for row in cells)] for place, heading in enumerate(headings)]
    out = console()
    gaps = _GAP * (len(columns) - 1)
    whole = [max(map(_cell_length, column)) for column in texts]
    words = [max(map(_longest_word, column)) for column in texts]
    if not out.is_terminal:
        out.width = max(out.width, sum(whole) + gaps)
    if sum(words) + gaps > out.width:
        for position, row in enumerate(cells):
            if position:
                print_line()
            print_facts(dict(zip((heading.strip() for heading in headings), row, strict=True)))
        return
    table = make_table(*columns)
    for column, width in zip(table.columns, _widen(words, whole, out.width - gaps), strict=True):
        column.width = width
    for row in cells:
        table.add_row(*row)
    write_rendered(out, table)


def _widen(least: Sequence[int], wanted: Sequence[int], available: int) -> list[int]:
    """Share the available width: every column gets its least width, and the narrowest needs are met first."""
    widths = list(least)
    spare = available - sum(least)
    places = sorted(range(len(widths)), key=lambda place: wanted[place] - least[place])
    for done, place in enumerate(places):
        more = min(wanted[place] - least[place], spare // (len(places) - done))
        widths[place] += more
        spare -= more
    return widths


def _cell_length(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _longest_word(text: str) -> int:
    return min(max(map(_cell_length, text.split()), default=0), _MAX_WORD_WIDTH)


def note(text: str) -> None:
    """Print a remark on stderr, except with `--json`."""
    if not is_json():
        write_error(text, dim=True)


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    kind: str
    cells: tuple[str, ...]
    is_number: bool

    @property
    def width(self) -> int:
        return max(
            *map(_cell_length, (self.name, *self.cells)),
            min(_cell_length(self.kind), _MAX_TYPE_WIDTH),
        )


def fit_widths(wanted: Sequence[tuple[int, bool]], available: int) -> list[int]:
    """Return the width of each column that fits.

    `wanted` has the natural width of each column and whether it may be truncated. The widest columns are
    truncated first. If that is not enough, columns are dropped from the right, so there are fewer widths.
    """
    for shown in range(len(wanted), 1, -1):
        widths = _narrow(wanted[:shown], available - _GAP * (shown - 1))
        if widths is not None:
            return widths
    return [min(wanted[0][0], max(available, _MIN_COLUMN_WIDTH))] if wanted else []


def print_rows(rows: pa.Table, kinds: Mapping[str, str] | None = None) -> None:
    """Print rows with a header of names and types. Columns that do not fit are named below the table.

    `kinds` replaces the type of columns by name.
    """
    from rich.text import Text

    columns = _columns(rows, kinds or {})
    widths = fit_widths([(column.width, not column.is_number) for column in columns], console().width)
    table = make_table()
    table.header_style = ""
    for column, width in zip(columns, widths, strict=False):
        head = Text.assemble((column.name, "bold"), "\n", (column.kind, "dim"), overflow="ellipsis", no_wrap=True)
        justify = "right" if column.is_number else "left"
        table.add_column(head, width=width, no_wrap=True, overflow="ellipsis", justify=justify)  # type: ignore[arg-type]
    for position in range(rows.num_rows):
        table.add_row(*(_cell(column.cells[position]) for column in columns[: len(widths)]))
    show(table)
    dropped = [column.name for column in columns[len(widths) :]]
    if dropped:
        named = ", ".join(dropped[:_NAMED_COLUMNS]) + (", …" if len(dropped) > _NAMED_COLUMNS else "")
        print_line(f"… and {len(dropped):,} more columns: {named}", style="dim")


def _narrow(wanted: Sequence[tuple[int, bool]], available: int) -> list[int] | None:
    """Truncate as little as possible, or return None if the columns do not fit."""
    for widest in range(_MAX_COLUMN_WIDTH, _MIN_COLUMN_WIDTH - 1, -1):
        widths = [min(width, widest) if is_truncatable else width for width, is_truncatable in wanted]
        if sum(widths) <= available:
            return widths
    return None


def _columns(rows: pa.Table, kinds: Mapping[str, str]) -> list[_Column]:
    import pyarrow as pa

    found = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        kind = field.type
        texts = tuple(cell_text(value) for value in plain_values(column))
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        shown_kind = escape(kinds[field.name]) if field.name in kinds else type_text(kind)
        found.append(_Column(escape(field.name), shown_kind, texts, is_number))
    return found


def _cell(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="dim" if text == "null" else "", overflow="ellipsis", no_wrap=True)
