"""Manifests from bytes. The parser reports every problem with its JSON path, then checks the hash.

Unknown fields are problems too: a reader that skipped them would lose data silently. Implements "Reading" of
docs/specs/manifest.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from warpdata.errors import BadInputError, CorruptError, ManifestCorruptedError, UnsupportedError
from warpdata.limits import (
    MAX_GENERATIONS,
    MAX_MANIFEST_BYTES,
    MAX_NAME_LENGTH,
    MAX_PAGE_BYTES,
    MAX_PAGE_LEVELS,
    MAX_SECTION_ENTRIES,
    MAX_TOP_PAGES,
    MIB,
)
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.hashing import Blob, blob_key, is_digest, sha256_hex
from warpdata.primitives.strict_json import decode_json
from warpdata.repository.manifest.canonical import Json, JsonObject, canonical_json
from warpdata.repository.manifest.codec import (
    ROW_MEMBERS,
    check_changes,
    check_shard,
    convert_changes,
    convert_row_members,
    version_of,
)
from warpdata.repository.manifest.model import (
    FORMAT,
    PAYLOAD_SECTIONS,
    Binding,
    Footer,
    Manifest,
    Page,
    Payload,
    SchemaChange,
    Shard,
    ShardList,
    TableEntry,
)

__all__ = ["ARTIFACT_KINDS", "DATASET_ID", "ENTRY_NAME", "REF_TYPES", "parse_manifest"]

DATASET_ID = re.compile(r"[a-z0-9_-]+/[a-z0-9_-]+")
ENTRY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
ARTIFACT_KINDS = ("tar_shards", "webdataset_shards", "files")
REF_TYPES = ("file", "image", "audio", "video")

_XXH3 = re.compile(r"[0-9a-f]{16}")
_GENERATION = re.compile(r"[0-9a-f]{8}")
_MAX_PARSED_BYTES = 2 * MIB
"""Encoded size of the manifests that stay parsed in memory. Parsed, they take several times as much."""
_T = TypeVar("_T")
_ROOT_KEYS = frozenset(
    {
        "format",
        "dataset_id",
        "version_hash",
        "tables",
        *PAYLOAD_SECTIONS,
        "bindings",
        "stats",
        "metadata",
        "generations",
    }
)
_ROW_MEMBERS = frozenset(ROW_MEMBERS)
_SHARD_MEMBERS = frozenset({"row_count", "footer"}) | _ROW_MEMBERS
_HINT = "The stored copy is corrupt: `warp verify` lists all problems, and publishing again repairs it."


_parsed: ByteLRU[str, Manifest] = ByteLRU(_MAX_PARSED_BYTES)


def parse_manifest(data: bytes, expected_version: str | None = None) -> Manifest:
    """Parse and verify a manifest.

    Raise `ManifestCorruptedError` with all problems, or `UnsupportedError` for a newer format. The same bytes give the
    same manifest, which is not to be changed: a commit and the reader after it parse a manifest once.
    """
    if len(data) > MAX_MANIFEST_BYTES:
        raise ManifestCorruptedError(f"the manifest has {len(data)} bytes; the limit is {MAX_MANIFEST_BYTES}")
    digest = sha256_hex(data)
    known = _parsed.get(digest)
    if known is None or (expected_version is not None and version_of(known) != expected_version):
        known = _parse(data, expected_version)
        if not known.metadata:  # callers get that of the user, who may change it
            _parsed.put(digest, known, len(data))
    return known


def _parse(data: bytes, expected_version: str | None) -> Manifest:
    try:
        document = decode_json(data, "the manifest")
    except CorruptError as error:
        raise ManifestCorruptedError(error.message, problems=(error.message,), hint=_HINT) from error
    parser = _Parser()
    manifest = parser.manifest(document)
    if parser.problems:
        listed = "\n".join(f"  - {problem}" for problem in parser.problems)
        raise ManifestCorruptedError(f"the manifest is malformed:\n{listed}", problems=tuple(parser.problems))
    _check_hash(manifest, document, expected_version)
    return manifest


def _check_hash(manifest: Manifest, document: Json, expected: str | None) -> None:
    assert isinstance(document, dict)
    claimed = document["version_hash"]
    try:
        actual, plain = version_of(manifest), sha256_hex(canonical_json(_hashed_part(document)))
    except BadInputError as error:
        raise ManifestCorruptedError(f"the manifest has no canonical form: {error.message}", hint=_HINT) from error
    if claimed != actual or (expected is not None and expected != actual):
        raise ManifestCorruptedError(
            f"manifest hash mismatch: expected {expected or claimed}, the content hashes to {actual}", hint=_HINT
        )
    # If the model dropped a part of the document, its hash would cover less than was read.
    if plain != actual:
        raise ManifestCorruptedError("the manifest is not in canonical form", hint=_HINT)


def _hashed_part(document: dict[str, Json]) -> Json:
    """Return the document without its version, its metadata and the `uri` of every blob."""
    out = {key: value for key, value in document.items() if key not in ("version_hash", "metadata")}
    for section in ("tables", *PAYLOAD_SECTIONS):
        entries = out.get(section)
        if isinstance(entries, dict):
            out[section] = {name: _without_uris(entry) for name, entry in entries.items()}
    return out


def _without_uris(entry: Json) -> Json:
    """Return a table or payload without the `uri` of shards, pages and index. Other fields may be called `uri`."""
    assert isinstance(entry, dict)
    out = dict(entry)
    out["shards"] = _strip_all(out["shards"])
    tree, index = out.get("shard_pages"), out.get("index")
    if isinstance(tree, dict):
        out["shard_pages"] = {**tree, "pages": _strip_all(tree["pages"])}
    if isinstance(index, dict):
        out["index"] = {key: value for key, value in index.items() if key != "uri"}
    return out


def _strip_all(blobs: Json) -> Json:
    assert isinstance(blobs, list)
    return [{key: value for key, value in blob.items() if key != "uri"} for blob in blobs if isinstance(blob, dict)]


class _Parser:
    """Walks the document and collects problems instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def manifest(self, document: Json) -> Manifest:
        root = self._object(document, "$")
        version = root.get("format")
        if isinstance(version, int) and not isinstance(version, bool) and version > FORMAT:
            raise UnsupportedError(
                f"the manifest has format {version}; this warpdata reads up to {FORMAT}", hint="Upgrade warpdata."
            )
        if version not in range(1, FORMAT + 1):
            self._problem("$.format", f"is {version!r}, not 1 to {FORMAT}")
        self._only(root, _ROOT_KEYS, "$")
        self._digest(root.get("version_hash"), "$.version_hash")
        manifest = Manifest(
            dataset_id=self._matching(root.get("dataset_id"), DATASET_ID, "$.dataset_id"),
            tables=self._section(root.get("tables"), "$.tables", self._table),
            **{
                section: self._section(root.get(section, {}), f"$.{section}", self._payload)
                for section in PAYLOAD_SECTIONS
            },
            bindings=self._bindings(root.get("bindings", []), "$.bindings"),
            metadata=self._object(root.get("metadata", {}), "$.metadata"),
            generations=self._generations(root.get("generations", {}), "$.generations"),
        )
        if version in range(1, FORMAT + 1) and version != manifest.format:
            self._problem("$.format", f"is {version}, but the content needs {manifest.format}")
        self._stats(root.get("stats"), manifest)
        self._check_artifacts(manifest)
        return manifest

    def _stats(self, value: Json, manifest: Manifest) -> None:
        stats = self._object(value, "$.stats")
        self._only(stats, {"total_rows", "total_bytes"}, "$.stats")
        for key, actual in (("total_rows", manifest.row_count), ("total_bytes", manifest.data_bytes)):
            if stats.get(key) != actual:
                self._problem(f"$.stats.{key}", f"is {stats.get(key)!r}, but the sections add up to {actual}")

    def _check_artifacts(self, manifest: Manifest) -> None:
        for name, payload in manifest.artifacts.items():
            if payload.kind not in ARTIFACT_KINDS:
                problem = f"is {payload.kind!r}, not one of {', '.join(ARTIFACT_KINDS)}"
                self._problem(f"$.artifacts.{name}.kind", problem)
        for index, binding in enumerate(manifest.bindings):
            if binding.table not in manifest.tables:
                self._problem(f"$.bindings[{index}].table", f"names no table: {binding.table!r}")
            if binding.artifact not in manifest.artifacts:
                self._problem(f"$.bindings[{index}].artifact", f"names no artifact: {binding.artifact!r}")

    def _table(self, value: Json, path: str) -> TableEntry:
        entry = self._object(value, path)
        self._only(entry, {"format", "shards", "shard_pages", "schema", "schema_changes", "next_id"}, path)
        if entry.get("format") != "parquet":
            self._problem(f"{path}.format", f"is {entry.get('format')!r}, not 'parquet'")
        schema = self._object(entry["schema"], f"{path}.schema") if "schema" in entry else None
        changes = self._changes(entry["schema_changes"], f"{path}.schema_changes") if "schema_changes" in entry else ()
        next_id = self._count(entry["next_id"], f"{path}.next_id") if "next_id" in entry else None
        shards = self._shards(entry, path, rows_required=True)
        for at, shard in enumerate(shards.shards):
            for member, problem in check_shard(shard, len(changes)):
                self._problem(f"{path}.shards[{at}].{member}", problem)
        return TableEntry(shards, schema=schema, changes=changes, next_id=next_id)

    def _changes(self, value: Json, path: str) -> tuple[SchemaChange, ...]:
        try:
            changes = convert_changes(value)
        except msgspec.ValidationError as error:
            self._problem(path, f"does not list schema changes: {error}")
            return ()
        for member, problem in check_changes(changes):
            self._problem(f"{path}{member}", problem)
        return changes

    def _generations(self, value: Json, path: str) -> dict[str, str]:
        listed = self._object(value, path)
        if len(listed) > MAX_GENERATIONS:
            self._problem(path, f"has {len(listed)} entries; the limit is {MAX_GENERATIONS}")
        for digest, generation in listed.items():
            self._digest(digest, f"{path} key")
            self._matching(generation, _GENERATION, f"{path}.{digest[:64]}")
        return {digest: str(generation) for digest, generation in listed.items()}

    def _payload(self, value: Json, path: str) -> Payload:
        entry = self._object(value, path)
        self._only(entry, {"kind", "shards", "shard_pages", "index", "attributes"}, path)
        index = self._blob(entry["index"], f"{path}.index", frozenset()) if "index" in entry else None
        return Payload(
            kind=self._matching(entry.get("kind"), ENTRY_NAME, f"{path}.kind"),
            shards=self._shards(entry, path, rows_required=False),
            index=index,
            attributes=self._object(entry.get("attributes", {}), f"{path}.attributes"),
        )

    def _shards(self, entry: JsonObject, path: str, *, rows_required: bool) -> ShardList:
        listed = self._list(entry.get("shards"), f"{path}.shards")
        shards = tuple(self._shard(item, f"{path}.shards[{i}]", rows_required) for i, item in enumerate(listed))
        if "shard_pages" not in entry:
            return ShardList(shards)
        where = f"{path}.shard_pages"
        tree = self._object(entry["shard_pages"], where)
        self._only(tree, {"levels", "pages"}, where)
        levels = self._count(tree.get("levels"), f"{where}.levels")
        listed = self._list(tree.get("pages"), f"{where}.pages")
        if shards or not 1 <= levels <= MAX_PAGE_LEVELS or not 1 <= len(listed) <= MAX_TOP_PAGES:
            self._problem(where, "must replace inline shards, with 1 to 8 levels and 1 to 256 pages")
        pages = tuple(self._page(item, f"{where}.pages[{i}]", rows_required) for i, item in enumerate(listed))
        return ShardList(pages=pages, levels=levels)

    def _shard(self, value: Json, path: str, rows_required: bool) -> Shard:
        blob = self._blob(value, path, _SHARD_MEMBERS if rows_required else frozenset({"row_count", "footer"}))
        entry = self._object(value, path)
        rows = self._count(entry["row_count"], f"{path}.row_count") if "row_count" in entry else None
        if rows is None and rows_required:
            self._problem(f"{path}.row_count", "is missing")
        footer = self._footer(entry["footer"], f"{path}.footer", blob) if "footer" in entry else None
        if not rows_required or not entry.keys() & _ROW_MEMBERS:
            return Shard(blob.hash, blob.byte_size, rows, footer)
        if "external" in entry and "uri" in entry:
            self._problem(f"{path}.uri", "does not belong to an external shard")
        try:
            return Shard(blob.hash, blob.byte_size, rows, footer, **convert_row_members(entry))
        except msgspec.ValidationError as error:
            self._problem(path, f"has a member of another shape: {error}")
            return Shard(blob.hash, blob.byte_size, rows, footer)

    def _footer(self, value: Json, path: str, blob: Blob) -> Footer:
        entry = self._object(value, path)
        self._only(entry, {"byte_size", "xxh3"}, path)
        size = self._count(entry.get("byte_size"), f"{path}.byte_size")
        if size > blob.byte_size:
            self._problem(f"{path}.byte_size", f"is {size}, more than the shard's {blob.byte_size}")
        return Footer(size, self._matching(entry.get("xxh3"), _XXH3, f"{path}.xxh3"))

    def _page(self, value: Json, path: str, rows_required: bool) -> Page:
        sums = ("shard_count", "row_count", "data_bytes")
        row_members = {"deleted_count", "format"} if rows_required else set()
        blob = self._blob(value, path, frozenset({*sums, *row_members}))
        entry = self._object(value, path)
        shard_count, row_count, data_bytes = (self._count(entry.get(key), f"{path}.{key}") for key in sums)
        deleted_count = self._count(entry.get("deleted_count", 0), f"{path}.deleted_count")
        version = self._count(entry.get("format", 1), f"{path}.format")
        if not 1 <= version <= FORMAT or (deleted_count and version == 1):
            self._problem(f"{path}.format", f"is {version}, with {deleted_count} deleted rows")
        if blob.byte_size > MAX_PAGE_BYTES:
            self._problem(f"{path}.byte_size", f"is {blob.byte_size}; the limit is {MAX_PAGE_BYTES}")
        return Page(blob.hash, blob.byte_size, shard_count, row_count, data_bytes, deleted_count, version)

    def _blob(self, value: Json, path: str, more: frozenset[str]) -> Blob:
        entry = self._object(value, path)
        self._only(entry, {"hash", "byte_size", "uri"} | more, path)
        digest = self._digest(entry.get("hash"), f"{path}.hash")
        uri = entry.get("uri")
        if uri is not None and uri != blob_key(digest):
            self._problem(f"{path}.uri", f"is {uri!r}, not the key of the blob")
        return Blob(digest, self._count(entry.get("byte_size"), f"{path}.byte_size"))

    def _bindings(self, value: Json, path: str) -> tuple[Binding, ...]:
        return tuple(self._binding(item, f"{path}[{i}]") for i, item in enumerate(self._list(value, path)))

    def _binding(self, value: Json, path: str) -> Binding:
        entry = self._object(value, path)
        self._only(entry, {"table", "column", "artifact", "ref_type"}, path)
        words = {
            key: self._string(entry.get(key), f"{path}.{key}") for key in ("table", "column", "artifact", "ref_type")
        }
        if words["ref_type"] not in REF_TYPES:
            self._problem(f"{path}.ref_type", f"is {words['ref_type']!r}, not one of {', '.join(REF_TYPES)}")
        return Binding(**words)

    def _section(self, value: Json, path: str, parse: Callable[[Json, str], _T]) -> dict[str, _T]:
        section = self._object(value, path)
        if len(section) > MAX_SECTION_ENTRIES:
            self._problem(path, f"has {len(section)} entries; the limit is {MAX_SECTION_ENTRIES}")
        out = {}
        for name, item in section.items():
            self._matching(name, ENTRY_NAME, f"{path} key")
            out[name] = parse(item, f"{path}.{name}")
        return out

    def _problem(self, path: str, what: str) -> None:
        self.problems.append(f"{path} {what}")

    def _only(self, entry: JsonObject, allowed: frozenset[str] | set[str], path: str) -> None:
        for key in sorted(entry.keys() - allowed):
            self._problem(f"{path}.{key}", "is not a known field")

    def _object(self, value: Json, path: str) -> dict[str, Json]:
        if isinstance(value, dict):
            return value
        self._problem(path, f"is {_name(value)}, not an object")
        return {}

    def _list(self, value: Json, path: str) -> list[Json]:
        if isinstance(value, list):
            return value
        self._problem(path, f"is {_name(value)}, not a list")
        return []

    def _string(self, value: Json, path: str) -> str:
        if isinstance(value, str) and value:
            return value
        self._problem(path, f"is {_name(value)}, not a non-empty string")
        return ""

    def _matching(self, value: Json, pattern: re.Pattern[str], path: str) -> str:
        text = self._string(value, path)
        short = all(len(part) <= MAX_NAME_LENGTH for part in text.split("/"))
        if text and not (pattern.fullmatch(text) and short):
            self._problem(path, f"is {text[:80]!r}, which does not match {pattern.pattern} or is too long")
        return text

    def _digest(self, value: Json, path: str) -> str:
        if isinstance(value, str) and is_digest(value):
            return value
        self._problem(path, f"is {value!r}, not 64 hex digits" if isinstance(value, str) else f"is {_name(value)}")
        return "0" * 64

    def _count(self, value: Json, path: str) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53:
            return value
        self._problem(path, f"is {_name(value)}, not a count")
        return 0


def _name(value: Json) -> str:
    if value is None:
        return "missing"
    return repr(value)[:60] if isinstance(value, str | int | float) else f"a {type(value).__name__}"
