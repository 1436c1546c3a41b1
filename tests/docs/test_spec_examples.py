"""If this fails, a second reader written from the specifications computes other hashes than this one."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks
from tests.reference import manifest_reader as reference
from warpdata import limits
from warpdata.kinds.tables import assign_rows
from warpdata.repository.catalog.records import (
    Head,
    Hint,
    VersionLabel,
    decode_commit,
    decode_record,
    encode_commit,
    encode_record,
)
from warpdata.repository.manifest import encode_manifest, parse_manifest

SPECS = ROOT / "docs" / "specs"


def example(page: str, info: str) -> str:
    found = blocks(SPECS / page, info)
    assert len(found) == 1, f"{page} has {len(found)} blocks of {info!r}"
    return found[0].text.strip("\n")


def test_the_example_manifest_hashes_as_claimed() -> None:
    stored, hashed = example("manifest.md", "json stored"), example("manifest.md", "json hashed")
    version = example("manifest.md", "text version")
    assert hashlib.sha256(hashed.encode()).hexdigest() == version
    assert json.loads(stored)["version_hash"] == version
    assert reference.version_of(stored.encode()) == version


def test_our_own_code_agrees_with_the_example() -> None:
    stored = example("manifest.md", "json stored").encode()
    manifest = parse_manifest(stored, example("manifest.md", "text version"))
    assert encode_manifest(manifest) == stored
    assert (manifest.row_count, manifest.data_bytes) == (18, 2100)


def test_the_example_commit_has_the_id_claimed() -> None:
    data, claimed = example("catalog.md", "json commit").encode(), example("catalog.md", "text commit-id")
    assert hashlib.sha256(data).hexdigest() == claimed
    commit = decode_commit(data, claimed)
    assert encode_commit(commit) == (claimed, data)
    assert commit.version == example("manifest.md", "text version")


@pytest.mark.parametrize(("info", "kind"), [("json head", Head), ("json hint", Hint), ("json label", VersionLabel)])
def test_the_example_records_carry_true_checksums(info: str, kind: Any) -> None:
    text = example("catalog.md", info)
    body = json.loads(text)
    claimed = body.pop("checksum")
    assert hashlib.sha256(reference.canonical(body)).hexdigest() == claimed
    record = decode_record(text.encode(), kind, info)
    assert encode_record(record) == text.encode()
    assert record.commit == example("catalog.md", "text commit-id")


def test_the_example_assignment_is_the_real_one() -> None:
    borders = [0, 240, 480, 720, 960, 1000]
    ranges = [assign_rows(1000, rank, 4, lambda row: borders) for rank in range(4)]
    assert [rows.stop for rows in ranges] == [240, 480, 720, 1000]
    assert "All three cuts move: 240, 480, 720." in (SPECS / "tables.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "sentence", "limit"),
    [
        ("manifest.md", "| stored manifest | {} bytes |", limits.MAX_MANIFEST_BYTES),
        ("manifest.md", "| entries of a section | {} |", limits.MAX_SECTION_ENTRIES),
        ("manifest.md", "| shards listed inline | {} per list |", limits.INLINE_SHARDS),
        ("manifest.md", "| pages at the top of a tree | {} |", limits.MAX_TOP_PAGES),
        ("manifest.md", "| levels of a tree | {} |", limits.MAX_PAGE_LEVELS),
        ("manifest.md", "at least {} (but for the last)", limits.PAGE_MIN_ENTRIES),
        ("manifest.md", "read as a number, are divisible by {}", limits.PAGE_TARGET_ENTRIES),
        ("manifest.md", "| nesting of JSON | {} |", limits.MAX_JSON_DEPTH),
        ("store.md", "| key | {} bytes |", limits.MAX_KEY_LENGTH),
        ("store.md", "| parts of a multipart upload | {} |", limits.MULTIPART_MAX_PARTS),
        ("catalog.md", "| record | {} bytes |", limits.MAX_RECORD_BYTES),
        ("catalog.md", "| message | {} characters |", limits.MAX_MESSAGE_LENGTH),
        ("catalog.md", "| steps from a hint before listing | {} |", limits.MAX_HINT_LAG_PROBES),
        ("publish.md", "| attempts to commit | {} |", limits.MAX_COMMIT_ATTEMPTS),
        ("tables.md", "| filter text | {} characters |", limits.MAX_FILTER_LENGTH),
    ],
)
def test_limits_are_those_of_the_code(page: str, sentence: str, limit: int) -> None:
    text = (SPECS / page).read_text(encoding="utf-8")
    before, after = sentence.split("{}")
    found = re.search(re.escape(before) + r"([\d,]+)" + re.escape(after), text)
    assert found is not None, f"{page} does not say {sentence!r}"
    assert int(found[1].replace(",", "")) == limit
