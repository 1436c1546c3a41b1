"""`python -m benchmarks.plots`: the stream benchmarks in RESULTS.md as a picture, in SVG.

Reads the tables as they stand, so the picture never says anything else than they do. Every bar is us against one
peer; where a table has a line for each library, its figures are divided here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TypeAlias

from benchmarks.streams.peers import OURS

__all__ = ["PLOT", "draw_plot"]

_HERE = Path(__file__).parent
PLOT = _HERE / "plots" / "streams.svg"
_ROW, _LEFT, _WIDTH, _TOP, _RIGHT = 20, 350, 440, 56, 110
_LEAST, _MOST = 0.2, 100.0
_TICKS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_BEHIND, _TARGET = "#b5433a", "#111"


@dataclass(frozen=True, slots=True)
class _Bar:
    """`ratio` is None where the peer did not come to a figure; `told` says why, or what the figure is."""

    case: str
    ratio: float | None
    target: float | None = None
    told: str = ""


Rows: TypeAlias = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    title: str
    colour: str
    read: Callable[[Rows], Iterator[_Bar]]


def draw_plot(results: Path = _HERE / "RESULTS.md", plot: Path = PLOT) -> None:
    """One bar for each peer and case, on a logarithmic axis; to the right of the line ours is ahead."""
    text = results.read_text(encoding="utf-8")
    read = [(group, list(group.read(_rows(text, group.name)))) for group in _GROUPS]
    groups = [(group, bars) for group, bars in read if bars]
    height = _TOP + _ROW * sum(len(bars) + 2 for _, bars in groups) + 10
    parts, y = [_head(height)], _TOP
    for group, bars in groups:
        y += _ROW
        parts.append(f'<text x="10" y="{y}" font-weight="bold">{escape(group.title)}</text>')
        for bar in bars:
            y += _ROW
            parts.append(_drawn(bar, group.colour, y))
        y += _ROW
    plot.parent.mkdir(exist_ok=True)
    size = f'width="{_LEFT + _WIDTH + _RIGHT}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    plot.write_text("\n".join([head, ground, *parts, "</svg>"]) + "\n", encoding="utf-8")


def _rows(text: str, name: str) -> Rows:
    """The cells of a recorded table: case, ours, peer, ratio, target, verdict."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    lines = [line for line in (found[1] if found else "").splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines]


def _number(text: str) -> float | None:
    found = re.search(r"\d+(?:\.\d+)?", text.replace(",", ""))
    return float(found[0]) if found else None


def _against(rows: Rows) -> Iterator[_Bar]:
    """Tables whose lines are comparisons already. A target of at most half the time is one of twice the speed."""
    for case, _, _, told, target, _ in (row for row in rows if "against " in row[0]):
        faster = re.search(r"([\d.]+) times as fast", told)
        ratio, due = (float(faster[1]) if faster else _number(told)), _number(target)
        if ratio is not None and "requests at" not in case:
            yield _Bar(case.replace("against ", ""), ratio, 1 / due if due and target.startswith("≤") else due)


def _divided(
    figure: Callable[[Sequence[str]], float | None], *, is_cost: bool, of: str
) -> Callable[[Rows], Iterator[_Bar]]:
    """Tables with a line for each library: our figure through theirs, or theirs through ours where less is better."""

    def read(rows: Rows) -> Iterator[_Bar]:
        by_case: dict[str, dict[str, Sequence[str]]] = {}
        for row in rows:
            arm, case = row[0].split(": ", 1) if ": " in row[0] else ("", "")
            if of in case:
                by_case.setdefault(case, {})[arm] = row
        for case, arms in by_case.items():
            yield from _compared(case, arms)

    def _compared(case: str, arms: Mapping[str, Sequence[str]]) -> Iterator[_Bar]:
        ours = figure(arms[OURS]) if OURS in arms else None
        for arm, row in arms.items():
            theirs = figure(row)
            if arm == OURS or ours is None:
                continue
            name = f"{case.replace(', against a full shuffle', '')}, {arm}"
            if theirs is None:
                yield _Bar(name, None, told="fails")
            else:
                yield _Bar(name, (theirs / ours if is_cost else ours / theirs) if ours and theirs else None, told="")

    return read


def _share_kept(row: Sequence[str]) -> float | None:
    """Of the batches after a kill, those that were the same."""
    found = re.search(r"([\d.]+)% of the batches", row[1] + row[2])
    return float(found[1]) / 100 if found else None


def _ratio_cell(row: Sequence[str]) -> float | None:
    return _number(row[3])


_GROUPS = (
    _Group("streams_s1", "S1 epoch: times as fast as the peer", "#2a6f97", _against),
    _Group("streams_s2", "S2 first batch: times as fast as the peer", "#52796f", _against),
    _Group("streams_s3", "S3 filtered epoch: times fewer bytes for a kept sample", "#9a6a3a", _against),
    _Group(
        "streams_s4",
        "S4 killed and gone on: times as many batches the same",
        "#6d597a",
        _divided(_share_kept, is_cost=False, of="ranks"),
    ),
    _Group(
        "streams_s5",
        "S5 sorted data, small cache: times the entropy of a batch",
        "#3d7068",
        _divided(_ratio_cell, is_cost=False, of="entropy"),
    ),
    _Group(
        "streams_s6",
        "S6 second version, second job: times fewer bytes",
        "#5c6b9c",
        _divided(_ratio_cell, is_cost=True, of="bytes for"),
    ),
)


def _x(ratio: float) -> float:
    held = min(max(ratio, _LEAST), _MOST)
    return _LEFT + _WIDTH * math.log(held / _LEAST) / math.log(_MOST / _LEAST)


def _drawn(bar: _Bar, colour: str, y: int) -> str:
    label = f'<text x="{_LEFT - 8}" y="{y}" text-anchor="end">{escape(bar.case)}</text>'
    if bar.ratio is None:
        return label + f'<text x="{_x(1.0) + 5:.1f}" y="{y}" fill="#666">{escape(bar.told)}</text>'
    left, right = sorted((_x(1.0), _x(bar.ratio)))
    fill = colour if bar.ratio >= 1 else _BEHIND
    told = f"{bar.ratio:,.0f}" if bar.ratio >= 100 else f"{bar.ratio:.2f}"
    parts = [label, f'<rect x="{left:.1f}" y="{y - 11}" width="{max(right - left, 1):.1f}" height="13" fill="{fill}"/>']
    end = right
    if bar.target is not None:
        at = _x(bar.target)
        parts.append(
            f'<line x1="{at:.1f}" y1="{y - 14}" x2="{at:.1f}" y2="{y + 5}" stroke="{_TARGET}" stroke-width="3"/>'
        )
        end = max(end, at)
    parts.append(f'<text x="{end + 6:.1f}" y="{y}">{told}{" (off the scale)" if bar.ratio > _MOST else ""}</text>')
    return "".join(parts)


def _head(height: int) -> str:
    parts = [
        '<text x="10" y="18" font-size="14" font-weight="bold">Training streams: warpdata against each peer</text>',
        '<text x="10" y="34" fill="#444">Right of 1× we are ahead, left of it (red) behind.</text>',
        f'<line x1="14" y1="41" x2="14" y2="54" stroke="{_TARGET}" stroke-width="3"/>',
        '<text x="22" y="52" fill="#444">A thick mark is our target against that peer.</text>',
    ]
    for tick in _TICKS:
        x, colour = _x(tick), "#333" if tick == 1 else "#ddd"
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{height - 8}" stroke="{colour}"/>')
        parts.append(f'<text x="{x:.1f}" y="{_TOP - 6}" text-anchor="middle">{tick:g}×</text>')
    return "".join(parts)


if __name__ == "__main__":
    draw_plot()
