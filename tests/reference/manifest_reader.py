"""A second opinion on manifests, written from docs/specs/manifest.md and nothing else.

Plain `json` and `hashlib`, slow and literal on purpose, with no import from the project: where it and
the project disagree, one of them has misread the specification. It trusts that a document is well
formed; what is malformed is the business of tests/malformed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["ListedShard", "canonical", "cut_pages", "seal", "shards_of", "version_of", "walk"]

SECTIONS = ("tables", "artifacts", "episodes", "tensors", "indexes")


class ListedShard(NamedTuple):
    section: str
    name: str
    hash: str
    byte_size: int
    row_count: int | None


def canonical(value: Any) -> bytes:
    """Section "Canonical JSON"."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def version_of(data: bytes) -> str:
    """Section "Version": the hash of what is left when the place-dependent parts are gone."""
    document = json.loads(data.decode())
    return hashlib.sha256(canonical(_hashed_payload(document))).hexdigest()


def seal(document: dict[str, Any]) -> bytes:
    """Stored bytes of a document, with the version hash that belongs to it."""
    version = hashlib.sha256(canonical(_hashed_payload(document))).hexdigest()
    return canonical({**document, "version_hash": version})


def walk(data: bytes, load: Callable[[str], bytes]) -> Iterator[ListedShard]:
    """Every shard of every section, by name; `load` fetches a page by its hash."""
    document = json.loads(data.decode())
    for section in SECTIONS:
        for name, entry in sorted(document.get(section, {}).items()):
            for shard in shards_of(entry, load):
                yield ListedShard(section, name, shard["hash"], shard["byte_size"], shard.get("row_count"))


def cut_pages(hashes: Sequence[str]) -> list[list[str]]:
    """Section "Pages": where a list of entries is cut, given the hash of each."""
    pages: list[list[str]] = [[]]
    for digest in hashes:
        pages[-1].append(digest)
        first_32_bits = int.from_bytes(bytes.fromhex(digest)[:4], "big")
        if (len(pages[-1]) >= 64 and first_32_bits % 512 == 0) or len(pages[-1]) == 2048:
            pages.append([])
    return [page for page in pages if page]


def _hashed_payload(document: dict[str, Any]) -> dict[str, Any]:
    payload = {key: value for key, value in document.items() if key not in ("version_hash", "metadata")}
    for section in SECTIONS:
        if section in payload:
            payload[section] = {name: _without_places(entry) for name, entry in payload[section].items()}
    return payload


def _without_places(entry: dict[str, Any]) -> dict[str, Any]:
    """A section's entry, its blob references without `uri`."""
    out = {**entry, "shards": [_drop_uri(shard) for shard in entry["shards"]]}
    if "shard_pages" in entry:
        tree = entry["shard_pages"]
        out["shard_pages"] = {**tree, "pages": [_drop_uri(page) for page in tree["pages"]]}
    if "index" in entry:
        out["index"] = _drop_uri(entry["index"])
    return out


def _drop_uri(reference: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in reference.items() if key != "uri"}


def shards_of(entry: dict[str, Any], load: Callable[[str], bytes]) -> Iterator[dict[str, Any]]:
    """The shards of an entry, in order, as the manifest or its pages have them."""
    yield from entry["shards"]
    tree = entry.get("shard_pages", {"levels": 0, "pages": []})
    for page in tree["pages"]:
        yield from _page(page, tree["levels"] - 1, load)


def _deleted(entry: dict[str, Any]) -> int:
    """Sections "Rows" and "Deleted rows": of a shard, or of a page reference."""
    count: int = entry.get("deleted_count", entry.get("deletes", {}).get("row_count", 0))
    return count


def _page(reference: dict[str, Any], level: int, load: Callable[[str], bytes]) -> Iterator[dict[str, Any]]:
    data = load(reference["hash"])
    if len(data) != reference["byte_size"] or hashlib.sha256(data).hexdigest() != reference["hash"]:
        raise ValueError(f"page {reference['hash']} is not what its name promises")
    page = json.loads(data.decode())
    if page["format"] != reference.get("format", 1) or page["level"] != level:
        raise ValueError(f"page {reference['hash']} is at the wrong level")
    if sum(_deleted(entry) for entry in page["entries"]) != reference.get("deleted_count", 0):
        raise ValueError(f"page {reference['hash']} has other deleted rows than its reference")
    for entry in page["entries"]:
        if level == 0:
            yield entry
        else:
            yield from _page(entry, level - 1, load)
