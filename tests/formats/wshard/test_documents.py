"""If this fails, the pages about episode files do not match the library."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import warpdata.wshard
from tests.docs.pages import ROOT, blocks, sections
from tests.docs.test_reference import public_members, signature
from warpdata import limits

PAGE = ROOT / "docs" / "reference" / "wshard.md"
SPEC = ROOT / "docs" / "specs" / "wshard.md"
WORKERS = ("WShardStreamWriter", "ChunkedEpisodeWriter", "FrameReader")


def written() -> set[str]:
    def flat(text: str) -> str:
        text = re.sub(r"\s+", " ", text).strip()
        return text.replace("( ", "(").replace(" )", ")").replace(",)", ")")

    return {flat(block.text) for block in blocks(PAGE, "python")}


def test_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(blocks(PAGE, "python")[0].text, str(PAGE), "exec", dont_inherit=True), names)  # noqa: S102
    assert names["load_wshard"]("ep_001.wshard").length == 70


@pytest.mark.parametrize("name", warpdata.wshard.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    value = getattr(warpdata.wshard, name)
    text = PAGE.read_text(encoding="utf-8")
    assert f"`{name}`" in text or name == "Origin"
    if inspect.isfunction(value):
        assert signature(name, value) in written()
    if name in WORKERS:
        assert signature(name, value) in written()
        for member, method in public_members(value):
            is_written = (
                signature(f"{name}.{member}", method) in written() if inspect.isfunction(method) else member in text
            )
            assert is_written, member
    if name == "BlockReader":
        shown = [name for name, method in public_members(value) if inspect.isfunction(method) and name != "pieces"]
        assert all(signature(f"BlockReader.{member}", getattr(value, member)) in written() for member in shown)


@pytest.mark.parametrize("name", ["Episode", "Channel", "Timebase"])
def test_every_field_is_documented(name: str) -> None:
    text = sections(PAGE)[f"`{name}`"]
    fields = dataclasses.fields(getattr(warpdata.wshard, name))
    assert not [field.name for field in fields if f"`{field.name}`" not in text]


@pytest.mark.parametrize(
    ("sentence", "limit"),
    [
        ("| entries | {} |", limits.WSHARD_MAX_ENTRIES),
        ("| names together, including shared bytes | {} bytes |", limits.WSHARD_MAX_NAMES_BYTES),
        ("| decoded block, or decoded time chunk | {} bytes |", limits.WSHARD_MAX_DECODED_BYTES),
        ("| time chunks of a block | {} |", limits.WSHARD_MAX_CHUNKS),
        ("| time chunks decoded at once, in this library | {} bytes, or", limits.WSHARD_MAX_READ_BYTES),
        ("bytes, or {} for each stored byte |", limits.WSHARD_READ_EXPANSION),
        ("| compressed blocks loaded at once, in this library | {} bytes, or", limits.WSHARD_MAX_READ_BYTES),
        ("| metadata block | {} bytes |", limits.WSHARD_MAX_JSON_BYTES),
        ("| steps | {} |", limits.WSHARD_MAX_STEPS),
        ("| dimensions of a step | {}, each", limits.WSHARD_MAX_DIMENSIONS),
        ("| channels, and parts of a journal | {} |", limits.WSHARD_MAX_CHANNELS),
        ("| nesting of JSON | {} |", limits.MAX_JSON_DEPTH),
        ("| record of a journal | {} bytes |", limits.WSHARD_MAX_RECORD_BYTES),
        ("| entries of a frame index | {} |", limits.MAX_VIDEO_FRAMES),
        ("| extradata of a frame index | {} bytes |", limits.WSHARD_MAX_EXTRADATA_BYTES),
        ("| one encoded frame, in this library | {} bytes |", limits.WSHARD_MAX_FRAME_BYTES),
    ],
)
def test_limits_match_the_code(sentence: str, limit: int) -> None:
    before, after = sentence.split("{}")
    found = re.search(re.escape(before) + r"([\d,]+)" + re.escape(after), SPEC.read_text(encoding="utf-8"))
    assert found is not None, f"the specification does not say {sentence!r}"
    assert int(found[1].replace(",", "")) == limit
