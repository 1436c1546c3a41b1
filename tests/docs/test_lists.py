"""If this fails, the glossary defines a word twice or out of order, or the change log says a thing twice."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

_FIRST_WORDS = 5


def test_the_glossary_has_each_word_once_in_order() -> None:
    text = (ROOT / "docs" / "GLOSSARY.md").read_text(encoding="utf-8")
    rows = text.partition("|---|---|\n")[2].strip().splitlines()
    words = [match[1].lower() for row in rows if (match := re.fullmatch(r"\| \*\*(.+?)\*\* \| .+ \|", row))]
    assert len(words) == len(rows) > 100
    assert words == sorted(set(words))


def test_lines_of_the_change_log_begin_differently() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    lines = re.findall(r"^- (.+)", text, re.MULTILINE)
    beginnings = [" ".join(line.split()[:_FIRST_WORDS]) for line in lines]
    assert lines
    assert not {words for words in beginnings if beginnings.count(words) > 1}


def test_lists_of_the_change_log_have_no_gaps() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert not re.findall(r"^- .+\n\n- .+", text, re.MULTILINE)
