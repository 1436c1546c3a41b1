"""If this fails, a reader of the documents follows a link and finds nothing, or a page says what it should not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, links, pages, prose

PAGES = pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            assert link.startswith("https://"), link
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {link}"
        assert path.is_relative_to(ROOT), f"{page.name} links out of the project: {link}"
        if anchor:
            assert anchor in anchors(path), f"{page.name} links to {link}, and {path.name} has no such heading"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached = {ROOT / "README.md"}
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        for link in links(page):
            path = (page.parent / link.partition("#")[0]).resolve()
            if path.suffix == ".md" and path.is_file() and path not in reached:
                reached.add(path)
                waiting.append(path)
    assert not [str(page.relative_to(ROOT)) for page in PAGES if page not in reached]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_of_one_piece(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# "), "a page begins with its title"
    assert text.count("```") % 2 == 0, "a block is left open"
    assert len(re.findall(r"^# ", re.sub(r"```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)) == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_path_of_one_machine_is_shown(page: Path) -> None:
    found = re.findall(r"(?<![\w.~$])/(?:home|root|tmp|work|Users)/\w*", prose(page))
    assert not found
