"""Markdown pages for the tests of documents: headings, fenced blocks and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Block", "anchors", "blocks", "code_blocks", "links", "pages", "prose", "sections", "strip_code"]

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<info>[^`\n]*)\n(?P<body>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#{1,6}) +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string, its text, and the line on which the text begins."""

    info: str
    text: str
    line: int


def pages() -> list[Path]:
    """Every page that the project keeps for people to read."""
    return [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


def blocks(page: Path, info: str) -> list[Block]:
    """The blocks whose info string is exactly this, in order."""
    return [block for block in code_blocks(page) if block.info == info]


def code_blocks(page: Path) -> list[Block]:
    """All fenced blocks, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(match["info"].strip(), match["body"], text.count("\n", 0, match.start("body")) + 1)
        for match in _FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """Return the page without its fenced blocks and without code in the text."""
    return strip_code(page.read_text(encoding="utf-8"))


def strip_code(text: str) -> str:
    """Remove fenced blocks and inline code from Markdown. Line numbers stay the same."""
    without = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    return re.sub(r"`[^`\n]*`", "``", without)


def links(page: Path) -> Iterator[str]:
    for match in _LINK.finditer(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        yield match[1]


def anchors(page: Path) -> set[str]:
    """Return the anchors that renderers derive from headings."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {_slug(match[2]) for match in _HEADING.finditer(text)}


def sections(page: Path) -> dict[str, str]:
    """Return the text below each heading, up to the next heading of any level."""
    text = page.read_text(encoding="utf-8")
    hidden = [(match.start(), match.end()) for match in _FENCE.finditer(text)]
    heads = [
        match for match in _HEADING.finditer(text) if not any(start <= match.start() < end for start, end in hidden)
    ]
    ends = [match.start() for match in heads[1:]] + [len(text)]
    return {match[2]: text[match.end() : end] for match, end in zip(heads, ends, strict=True)}


def _slug(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")
