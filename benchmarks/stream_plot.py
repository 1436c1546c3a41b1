"""`python -m benchmarks.stream_plot`: the ratios of the stream benchmarks in RESULTS.md as a picture, in SVG.

Reads the tables as they stand, so the picture never says anything else than they do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

__all__ = ["PLOT", "draw_plot"]

_HERE = Path(__file__).parent
PLOT = _HERE / "plots" / "streams.svg"
_TITLES = {
    "streams_s1": "S1 epoch: times as fast as the peer",
    "streams_s2": "S2 first batch: times as fast as the peer",
    "streams_s3": "S3 filtered epoch: times fewer bytes for a kept sample",
}
_COLOURS = {"streams_s1": "#2a6f97", "streams_s2": "#52796f", "streams_s3": "#9a6a3a"}
_ROW, _LEFT, _WIDTH, _TOP = 20, 330, 420, 30
_LEAST, _MOST = 0.1, 100.0


@dataclass(frozen=True, slots=True)
class _Bar:
    group: str
    case: str
    ratio: float


def draw_plot(results: Path = _HERE / "RESULTS.md", plot: Path = PLOT) -> None:
    """One bar for each peer and case, on a logarithmic axis; to the right of the line ours is ahead."""
    bars = list(_bars(results.read_text(encoding="utf-8")))
    groups = [group for group in _TITLES if any(bar.group == group for bar in bars)]
    height = _TOP + _ROW * (len(bars) + 2 * len(groups) + 1)
    parts = [_axis(height)]
    y = _TOP
    for group in groups:
        y += _ROW
        parts.append(f'<text x="10" y="{y}" font-weight="bold">{escape(_TITLES[group])}</text>')
        for bar in (bar for bar in bars if bar.group == group):
            y += _ROW
            parts.append(_drawn(bar, y))
        y += _ROW
    plot.parent.mkdir(exist_ok=True)
    size = f'width="{_LEFT + _WIDTH + 80}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    plot.write_text("\n".join([head, ground, *parts, "</svg>"]) + "\n", encoding="utf-8")


def _bars(text: str) -> Iterator[_Bar]:
    for group in _TITLES:
        found = re.search(rf"<!-- {group} -->\n(.*?)<!-- /{group} -->", text, re.DOTALL)
        for line in (found[1] if found else "").splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            told = cells[3] if len(cells) >= 5 and "against" in cells[0] else ""
            number = re.search(r"([\d.]+) times as fast", told) or re.match(r"(\d+(?:\.\d+)?)", told)
            if number:
                yield _Bar(group, cells[0].replace("against ", ""), float(number[1]))


def _x(ratio: float) -> float:
    held = min(max(ratio, _LEAST), _MOST)
    return _LEFT + _WIDTH * math.log(held / _LEAST) / math.log(_MOST / _LEAST)


def _drawn(bar: _Bar, y: int) -> str:
    left, right = sorted((_x(1.0), _x(bar.ratio)))
    colour = _COLOURS[bar.group] if bar.ratio >= 1 else "#b5433a"
    return (
        f'<text x="{_LEFT - 8}" y="{y}" text-anchor="end">{escape(bar.case)}</text>'
        f'<rect x="{left:.1f}" y="{y - 11}" width="{max(right - left, 1):.1f}" height="13" fill="{colour}"/>'
        f'<text x="{right + 5:.1f}" y="{y}">{bar.ratio:.2f}</text>'
    )


def _axis(height: int) -> str:
    parts = []
    for tick in (0.1, 0.5, 1, 2, 5, 10, 20, 50, 100):
        x, colour = _x(tick), "#333" if tick == 1 else "#ddd"
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP - 4}" x2="{x:.1f}" y2="{height - 8}" stroke="{colour}"/>')
        parts.append(f'<text x="{x:.1f}" y="{_TOP - 10}" text-anchor="middle">{tick:g}×</text>')
    return "".join(parts)


if __name__ == "__main__":
    draw_plot()
