"""The manifest that a publish leads to, and the page blobs that it needs. Pure.

Shard lists are inline while they are short. If the manifest is still too large, all of them are paged. Either way
the result depends only on the content, so appending in steps and publishing at once give the same version.
Implements "Layout" of docs/specs/manifest.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from warpdata.errors import BadInputError, ErrorKind, LimitExceededError
from warpdata.kinds import StagedBlob, StagedEntry, payload_kind
from warpdata.limits import INLINE_SHARDS, MAX_NAME_LENGTH, MAX_SECTION_ENTRIES
from warpdata.repository.manifest import (
    ENTRY_NAME,
    Binding,
    JsonObject,
    LoadPage,
    Manifest,
    ManifestEntry,
    Shard,
    encode_manifest,
    extend_shards,
)

__all__ = ["BuiltManifest", "StagedVersion", "build_manifest", "check_entry_name", "layout_manifest"]


@dataclass(frozen=True, slots=True)
class StagedVersion:
    """The staged entries of a publish, by section and name, and its bindings.

    `carried` names the artifacts that reference columns brought, which no call added.
    """

    entries: Mapping[str, Mapping[str, StagedEntry]]
    bindings: tuple[Binding, ...] = ()
    carried: frozenset[str] = frozenset()

    def blobs(self) -> Iterator[StagedBlob]:
        """Yield all blobs of all entries. A blob may repeat."""
        for staged in self.entries.values():
            for entry in staged.values():
                yield from entry.blobs

    def item_counts(self) -> dict[str, dict[str, int]]:
        """Return the rows, files, episodes and tensors of each entry, by section and name."""
        return {
            section: {name: entry.item_count for name, entry in staged.items()}
            for section, staged in self.entries.items()
        }


@dataclass(frozen=True, slots=True)
class BuiltManifest:
    """A manifest, and those of its page blobs that may not be stored yet."""

    manifest: Manifest
    new_pages: Mapping[str, bytes] = field(default_factory=dict)


def build_manifest(base: Manifest, staged: StagedVersion, metadata: JsonObject, load_page: LoadPage) -> BuiltManifest:
    """Add the staged entries to `base`. Each kind decides whether an entry replaces or extends the stored one."""
    for section, stored in base.sections().items():
        if len(stored.keys() | staged.entries.get(section, {}).keys()) > MAX_SECTION_ENTRIES:
            raise LimitExceededError(f"{base.dataset_id} would have more than {MAX_SECTION_ENTRIES} {section}")
    try:
        return _build(base, staged, metadata, load_page, INLINE_SHARDS)
    except LimitExceededError:
        return _build(base, staged, metadata, load_page, 0)


def check_entry_name(name: str, noun: str) -> None:
    """Raise `BadInputError` for a name that no entry of a manifest can have. `noun` says what it would name."""
    if not ENTRY_NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise BadInputError(
            f"{name[:200]!r} is not a valid name for {noun}",
            hint="Use letters, digits, underscore, dot and dash.",
            kind=ErrorKind.INVALID_NAME,
        )


def layout_manifest(manifest: Manifest, load_page: LoadPage) -> BuiltManifest:
    """Page the shard lists of a manifest as its size needs it."""
    return build_manifest(manifest, StagedVersion({}), manifest.metadata, load_page)


def _build(
    base: Manifest, staged: StagedVersion, metadata: JsonObject, load_page: LoadPage, inline_limit: int
) -> BuiltManifest:
    sections: dict[str, Any] = {}
    new_pages: dict[str, bytes] = {}
    for section, stored in base.sections().items():
        merged = _merge(section, stored, staged.entries.get(section, {}))
        sections[section] = {}
        for name, (entry, shards) in merged.items():
            paged = extend_shards(entry.shards, shards, load_page, inline_limit=inline_limit)
            sections[section][name] = replace(entry, shards=paged.shards)
            new_pages |= paged.new_pages
    bound = {(binding.table, binding.column): binding for binding in (*base.bindings, *staged.bindings)}
    bindings = tuple(sorted(bound.values(), key=astuple))
    manifest = replace(base, **sections, bindings=bindings, metadata={})
    encode_manifest(manifest)  # raises LimitExceededError if the manifest is too large
    return BuiltManifest(replace(manifest, metadata=metadata) if metadata else manifest, new_pages)


def _merge(
    section: str, stored: Mapping[str, ManifestEntry], staged: Mapping[str, StagedEntry]
) -> dict[str, tuple[ManifestEntry, Sequence[Shard]]]:
    """Return all entries of a section, each with the shards to add."""
    out: dict[str, tuple[ManifestEntry, Sequence[Shard]]] = {name: (entry, ()) for name, entry in stored.items()}
    for name, new in staged.items():
        kind = payload_kind(section)
        out[name] = kind.merge(stored.get(name), new), kind.added_shards(stored.get(name), new)
    return out
