"""The keys under which a publish stores its blobs while garbage collections run.

A condemned key must not be used, unless the head that the commit builds on reaches it. The blob then gets a new
generation, which the manifest names. Implements "What a writer may use" of docs/specs/gc.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from warpdata.errors import ConflictError, CorruptError, NotFoundError
from warpdata.limits import MAX_GENERATIONS
from warpdata.primitives.hashing import Blob
from warpdata.publish.manifest_builder import BuiltManifest
from warpdata.repository.gc import CondemnedKeys
from warpdata.repository.manifest import LoadPage, Manifest, kept_blobs, version_of

__all__ = ["HeadBlobs", "Placement", "place_blobs"]

_LATER = "Publish again when the collection has ended; its list stays in force for an hour after that."


@dataclass(frozen=True)
class Placement:
    """The condemned keys, and the generations that this publish has chosen. They stay the same for all attempts.

    `moves_branch`: the commit becomes the head, so the blobs of the head before it are live at every moment.
    """

    condemned: CondemnedKeys = field(default_factory=CondemnedKeys)
    new_generation: Callable[[], str] = lambda: "00000000"
    moves_branch: bool = True
    chosen: dict[str, str] = field(default_factory=dict)

    def fresh(self, digest: str) -> str:
        """Return the new generation of a blob."""
        if digest not in self.chosen:
            self.chosen[digest] = self.new_generation()
        return self.chosen[digest]


@dataclass(frozen=True, slots=True)
class HeadBlobs:
    """The head that a commit builds on. `is_base`: its entries are part of the new version."""

    manifest: Manifest
    load_page: LoadPage
    is_base: bool


def place_blobs(
    built: BuiltManifest, staged: Iterable[Blob], head: HeadBlobs | None, place: Placement
) -> BuiltManifest:
    """Return the manifest with the generations of its blobs. Costs nothing while no key is condemned.

    Raise `ConflictError` if the version cannot be made before the collection has ended.
    """
    sizes = {blob.hash: blob.byte_size for blob in staged}
    sizes |= {digest: len(data) for digest, data in built.new_pages.items()}
    old = {} if head is None else head.manifest.generations
    if not place.condemned and not old:
        return built
    reached = _reached(head, sizes.keys()) if place.moves_branch else set()
    found: dict[str, str] = {}
    for digest in sizes:
        if digest in reached:
            if digest in old:
                found[digest] = old[digest]
        elif digest in place.condemned:
            found[digest] = place.fresh(digest)
    if head is not None and head.is_base:
        if not place.moves_branch:
            _check_base(built, head, sizes, place.condemned)
        found |= _inherited(built, head, sizes)
    placed = _with_generations(built, found)
    if _is_condemned_version(placed, head, place):
        plain = [digest for digest in sizes if digest not in found] or list(sizes)
        if not plain:
            raise ConflictError(f"version {version_of(placed.manifest)[:12]} is being collected", hint=_LATER)
        forced = min(plain, key=lambda digest: (sizes[digest], digest))
        placed = _with_generations(built, {**found, forced: place.fresh(forced)})
    return placed


def _with_generations(built: BuiltManifest, found: Mapping[str, str]) -> BuiltManifest:
    if len(found) > MAX_GENERATIONS:
        raise ConflictError(
            f"{len(found)} blobs of this version are being collected, and a manifest can name {MAX_GENERATIONS}",
            hint=_LATER,
        )
    return replace(built, manifest=replace(built.manifest, generations=dict(sorted(found.items()))))


def _is_condemned_version(placed: BuiltManifest, head: HeadBlobs | None, place: Placement) -> bool:
    """Return whether the key of the manifest must not be used. That of the head is live."""
    version = version_of(placed.manifest)
    is_head = place.moves_branch and head is not None and version == version_of(head.manifest)
    return version in place.condemned and not is_head


def _reached(head: HeadBlobs | None, digests: Iterable[str]) -> set[str]:
    """Return those of the blobs that the head reaches. A head that cannot be read reaches nothing."""
    if head is None:
        return set()
    try:
        return {blob.hash for blob in kept_blobs(head.manifest, head.load_page)}.intersection(digests)
    except (CorruptError, NotFoundError):
        return set()


def _inherited(built: BuiltManifest, head: HeadBlobs, staged: Mapping[str, int]) -> dict[str, str]:
    """Return the generations of the base that the new version still needs, without those of staged blobs."""
    old = head.manifest.generations
    if not old:
        return {}
    needed = _needed_of_base(built, head, staged)
    return {digest: name for digest, name in old.items() if digest in needed}


def _needed_of_base(built: BuiltManifest, head: HeadBlobs, staged: Mapping[str, int]) -> set[str]:
    """Return the blobs of the new version that are not staged, so they are those of its base."""
    pages = built.new_pages
    blobs = kept_blobs(built.manifest, lambda page: pages.get(page.hash) or head.load_page(page))
    return {blob.hash for blob in blobs if blob.hash not in staged}


def _check_base(built: BuiltManifest, head: HeadBlobs, staged: Mapping[str, int], condemned: CondemnedKeys) -> None:
    """Refuse blobs of a base that are being collected, if nothing but the new version would keep them."""
    for digest in sorted(_needed_of_base(built, head, staged)):
        if digest in condemned:
            raise ConflictError(f"the base of this version is being collected: blob {digest[:12]}", hint=_LATER)
