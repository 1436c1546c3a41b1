"""If this fails, a printed table is wider than the terminal, or shows wrong values."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import UTC, datetime
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.cli import output
from warpdata.cli.format import (
    bytes_text,
    cell_text,
    count_text,
    escape,
    plain_values,
    rate_text,
    rows_text,
    seconds_text,
    time_text,
    type_text,
)
from warpdata.cli.output import fit_widths, print_facts, print_table


@given(st.lists(st.tuples(st.integers(1, 300), st.booleans()), min_size=1, max_size=40), st.integers(20, 300))
def test_columns_fit_width_and_never_grow(wanted: list[tuple[int, bool]], available: int) -> None:
    widths = fit_widths(wanted, available)
    assert 1 <= len(widths) <= len(wanted)
    assert all(width <= natural for width, (natural, _) in zip(widths, wanted, strict=False))
    assert sum(widths) + 2 * (len(widths) - 1) <= available
    if sum(natural for natural, _ in wanted) + 2 * (len(wanted) - 1) <= available and max(wanted)[0] <= 48:
        assert widths == [natural for natural, _ in wanted]


@given(st.text())
def test_escape_changes_only_unprintable_text(text: str) -> None:
    assert escape(text).isprintable()
    assert not text.isprintable() or escape(text) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ("two\nlines", "two\\nlines"),
        ("x" * 500, "x" * 200 + "…"),
        (1234567.5, "1234567.5"),
        (0.12345678901234567, "0.123456789"),
        (b"\x00" * 1240, "<1.24 kB>"),
        ([1, None, "a"], "[1, null, a]"),
        (list(range(30)), "[" + ", ".join(map(str, range(24))) + ", …]"),
        ({"a": 1, "b": {"c": []}}, "{a: 1, b: {c: []}}"),
    ],
)
def test_cell_text(value: object, text: str) -> None:
    assert cell_text(value) == text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.list_(pa.uint8(), 64), "uint8[64]"),
        (pa.list_(pa.list_(pa.string())), "string[][]"),
        (pa.struct([("a", pa.int8()), ("b", pa.large_list(pa.date32()))]), "struct<a int8, b date32[day][]>"),
        (pa.map_(pa.string(), pa.int64()), "map<string, int64>"),
        (pa.dictionary(pa.int8(), pa.string()), "string (dictionary)"),
        (pa.timestamp("us", "UTC"), "timestamp[us, tz=UTC]"),
    ],
)
def test_type_text(kind: pa.DataType, text: str) -> None:
    assert type_text(kind) == text


def test_float32_has_shortest_text() -> None:
    assert plain_values(pa.chunked_array([pa.array([0.1, None], pa.float32())])) == ["0.1", None]


def test_numbers_sizes_and_times() -> None:
    assert [bytes_text(n) for n in (0, 999, 1000, 49_400, 999_499, 999_600, 10**18)] == [
        "0 B",
        "999 B",
        "1.00 kB",
        "49.4 kB",
        "999 kB",
        "1.00 MB",
        "1000 PB",
    ]
    assert [rows_text(n) for n in (7, 2_050_000)] == ["7 rows", "2.05 M rows"]
    assert [count_text(n, "row") for n in (0, 1, 1797)] == ["0 rows", "1 row", "1,797 rows"]
    assert count_text(2, "index", "indexes") == "2 indexes"
    assert [seconds_text(s) for s in (0.00339, 0.069, 1.26, 95.6, 600, 86_400)] == [
        "3.4 ms",
        "69 ms",
        "1.3 s",
        "95.6 s",
        "10 min",
        "24.0 h",
    ]
    assert rate_text(1450, 0.0254, "samples") == "57,000 samples/s"
    moment = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
    assert time_text(moment) == f"{moment.astimezone():%Y-%m-%d %H:%M}"


WORDS = st.text("0123456789abcdef", min_size=1, max_size=12)
SENTENCES = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)


def printed_on_terminal(width: int, print_something: Callable[[], None]) -> str:
    """Return the text that a terminal of this width would show."""
    from rich.console import Console

    def narrow() -> Console:
        return Console(file=sys.stdout, width=width, force_terminal=True, color_system=None, markup=False)

    with mock.patch.object(output, "console", narrow), redirect_stdout(io.StringIO()) as out:
        print_something()
    return out.getvalue()


@given(st.lists(st.lists(SENTENCES, min_size=4, max_size=4), min_size=1, max_size=4), st.integers(24, 120))
def test_narrow_table_cuts_no_word(rows: list[list[str]], width: int) -> None:
    """A hash that is cut cannot be copied."""
    columns = ("version", "time of day", ">size", "labels and message")
    text = printed_on_terminal(width, lambda: print_table(columns, rows))
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    shown = text.split()
    for word in (word for row in rows for cell in row for word in cell.split()):
        assert word in shown
    assert "…" not in text


@given(st.dictionaries(WORDS, SENTENCES, max_size=5), st.integers(24, 120))
def test_narrow_facts_cut_no_word(facts: dict[str, str], width: int) -> None:
    text = printed_on_terminal(width, lambda: print_facts(facts))
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert {word for fact in facts.items() for part in fact for word in part.split()} <= set(text.split())


def test_long_digest_wraps() -> None:
    digest = "0123456789abcdef" * 4
    text = printed_on_terminal(40, lambda: print_facts({"version": digest}))
    assert "".join(text.split()).endswith(digest)


def test_piped_table_is_one_line_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("path", "message"), [("a" * 200, "b " * 100)])
    assert len(capsys.readouterr().out.splitlines()) == 3
