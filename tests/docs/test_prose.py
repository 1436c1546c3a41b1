"""If this fails, names or prose have drifted into a private dialect that a reader from this field cannot follow.

`python -m tests.docs.prose PATH…` lists the findings with their places. See "Rules" in CONTRIBUTING.md.
"""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT
from tests.docs.prose import banned_names, findings, prose_files, word_count

MAX_PER_THOUSAND = 2.0
AREAS = ["src", "tests", "benchmarks", "examples", "docs"]


@pytest.mark.parametrize("area", AREAS)
def test_prose_has_few_dialect_markers(area: str) -> None:
    found, words = [], 0
    for path in prose_files([str(ROOT / area)]):
        found += findings(path)
        words += word_count(path)
    assert words > 0
    listed = "\n".join(map(str, found[:50]))
    assert 1000 * len(found) / words < MAX_PER_THOUSAND, f"{len(found)} findings in {words} words:\n{listed}"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_first_pages_have_none(name: str) -> None:
    assert not [str(finding) for finding in findings(ROOT / name)]


@pytest.mark.parametrize("area", ["src", "tests", "benchmarks", "examples"])
def test_names_use_no_private_words(area: str) -> None:
    found = [
        finding for path in prose_files([str(ROOT / area)]) if path.suffix == ".py" for finding in banned_names(path)
    ]
    assert not found, "\n".join(map(str, found))


def test_the_check_finds_what_it_bans() -> None:
    page = ROOT / "build" / "prose-sample.py"
    page.parent.mkdir(exist_ok=True)
    page.write_text(
        '"""What lies here was told by nobody."""\n\n\ndef crew_of() -> None:\n    """Where it stands."""\n'
        '    raise ValueError("the folder can not be read")\n',
        encoding="utf-8",
    )
    words = {finding.word for finding in findings(page)}
    names = [finding.word for finding in banned_names(page)]
    page.unlink()
    assert {"lies", "told", "nobody", "What", "Where", "stands", "folder", "can not"} <= words
    assert names == ["crew_of"]
