"""If this fails, the page about conversions does not match the library."""

from __future__ import annotations

import inspect
import re

import pytest

import warpdata.conversion
from tests.docs.pages import ROOT, blocks, sections
from tests.docs.test_reference import public_members, signature

PAGE = ROOT / "docs" / "reference" / "conversion.md"


def written() -> set[str]:
    def flat(text: str) -> str:
        return re.sub(r"\s+", " ", text).strip().replace("( ", "(").replace(" )", ")").replace(",)", ")")

    return {flat(block.text) for block in blocks(PAGE, "python")}


@pytest.mark.parametrize("name", warpdata.conversion.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    value = getattr(warpdata.conversion, name)
    if name == "FORMATS":
        text = PAGE.read_text(encoding="utf-8")
        assert all(f"`{kind}`" in text for kind in value)
        return
    assert f"`{name}`" in sections(PAGE)
    if inspect.isfunction(value) or name == "RecordEpisodes":
        assert signature(name, value) in written()
    if name == "ConversionReport":
        for member, method in public_members(value):
            is_listed = f"`{member}`" in sections(PAGE)[f"`{name}`"]
            assert signature(f"{name}.{member}", method) in written() if inspect.isfunction(method) else is_listed
