"""Bar charts of ratios on a logarithmic axis, in SVG.

The charts need nothing but bars, labels and one axis, so they are written by hand and stay stable in diffs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Bar", "BarGroup", "draw_chart"]

_ROW, _LEFT, _WIDTH, _TOP, _RIGHT = 20, 470, 440, 56, 120
_MIN, _MAX = 0.05, 1000.0
_TICKS = (0.05, 0.2, 0.5, 1, 2, 5, 10, 20, 100, 1000)
_AHEAD, _BEHIND, _TARGET = "#2a6f97", "#b5433a", "#111"
_LABEL_CHARS = 68


@dataclass(frozen=True, slots=True)
class Bar:
    """`text` replaces the number at the end of the bar."""

    label: str
    ratio: float
    target: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class BarGroup:
    title: str
    bars: Sequence[Bar]


def draw_chart(title: str, caption: str, groups: Sequence[BarGroup]) -> str:
    """Return an SVG with one bar per ratio; bars to the left of 1 are red."""
    groups = [group for group in groups if group.bars]
    height = _TOP + _ROW * sum(len(group.bars) + 2 for group in groups) + 10
    size = f'width="{_LEFT + _WIDTH + _RIGHT}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="18" font-size="14" font-weight="bold">{escape(title)}</text>',
        f'<text x="10" y="34" fill="#444">{escape(caption)}</text>',
        *_axis(height),
    ]
    y = _TOP
    for group in groups:
        y += _ROW
        lines.append(f'<text x="10" y="{y}" font-weight="bold">{escape(group.title)}</text>')
        for bar in group.bars:
            y += _ROW
            lines += _draw_bar(bar, y)
        y += _ROW
    return "\n".join([*lines, "</svg>"]) + "\n"


def _axis(height: int) -> list[str]:
    lines = []
    for tick in _TICKS:
        x, colour = _x(tick), "#333" if tick == 1 else "#ddd"
        lines.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{height - 8}" stroke="{colour}"/>')
        lines.append(f'<text x="{x:.1f}" y="{_TOP - 6}" text-anchor="middle">{tick:g}×</text>')
    return lines


def _x(ratio: float) -> float:
    clamped = min(max(ratio, _MIN), _MAX)
    return _LEFT + _WIDTH * math.log(clamped / _MIN) / math.log(_MAX / _MIN)


def _draw_bar(bar: Bar, y: int) -> list[str]:
    label = bar.label if len(bar.label) <= _LABEL_CHARS else bar.label[: _LABEL_CHARS - 1] + "…"
    left, right = sorted((_x(1.0), _x(bar.ratio)))
    fill = _AHEAD if bar.ratio >= 1 else _BEHIND
    lines = [
        f'<text x="{_LEFT - 8}" y="{y}" text-anchor="end">{escape(label)}</text>',
        f'<rect x="{left:.1f}" y="{y - 11}" width="{max(right - left, 1):.1f}" height="13" fill="{fill}"/>',
    ]
    if bar.target is not None:
        at = _x(bar.target)
        mark = f'<line x1="{at:.1f}" y1="{y - 14}" x2="{at:.1f}" y2="{y + 5}" stroke="{_TARGET}" stroke-width="3"/>'
        lines.append(mark)
        right = max(right, at)
    number = f"{bar.ratio:,.0f}×" if bar.ratio >= 100 else f"{bar.ratio:.2f}×"
    lines.append(f'<text x="{right + 6:.1f}" y="{y}">{escape(bar.text or number)}</text>')
    return lines
