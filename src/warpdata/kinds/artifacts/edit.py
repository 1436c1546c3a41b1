"""Artifacts with files added or removed, and three-way merges of artifacts, without reading any file of the base.

Old shards stay as they are, and new files get shards of their own. Only the member index is written again: it is read
and written a page at a time. A shard without members is dropped, unless rows name shards by number. Implements "Edits"
of docs/specs/artifacts.md.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warpdata.errors import AlreadyExistsError, CorruptError
from warpdata.kinds import ChooseSide, StageContext, StagedBlob, StagedEntry, merge_item, shards_of
from warpdata.kinds.artifacts.artifact import Artifact
from warpdata.kinds.artifacts.entry import ArtifactEntry
from warpdata.kinds.artifacts.index_pages import PackedMember, write_index
from warpdata.kinds.artifacts.member import Member
from warpdata.kinds.artifacts.source_files import list_sources
from warpdata.kinds.artifacts.stage import Packing, pack_sources
from warpdata.primitives.hashing import fingerprint_file
from warpdata.repository.manifest import Shard, ShardList

__all__ = ["FileChanges", "edit_artifact", "merge_artifacts"]


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Files to add by member path, and member paths to remove. `keeps_shards` if rows name shards by number."""

    added: Mapping[str, bytes | str | Path]
    removed: Sequence[str] = ()
    keeps_shards: bool = False


@dataclass(frozen=True, slots=True)
class _NewContent:
    """Members in order, with shard numbers that refer to `shards`. `members` can be called more than once."""

    packing: Packing
    members: Callable[[], Iterator[PackedMember]]
    shards: Sequence[Shard]
    blobs: Sequence[StagedBlob] = ()
    added_count: int = 0
    keeps_shards: bool = True


def edit_artifact(name: str, stored: Artifact | None, changes: FileChanges, context: StageContext) -> StagedEntry:
    """Return the artifact with the changes. Without a stored one, return a new artifact of kind `tar_shards`.

    Raise `AlreadyExistsError` for a path that exists, and `ObjectNotFoundError` for a path to remove that does not.
    """
    sources = list_sources(changes.added) if changes.added else []
    removed = frozenset(changes.removed)
    if stored is not None:
        _check_paths(stored, [source.path for source in sources], removed)
    old = [] if stored is None else list(stored.shards())
    packing = Packing("tar_shards") if stored is None else Packing(stored.entry.kind, stored.entry.compression)
    packing = replace(packing, first_shard=len(old))
    parts = pack_sources(name, sources, packing, context)
    new = sorted((member for _, members in parts for member in members), key=_path_bytes)
    blobs = [blob for blob, _ in parts]

    def members() -> Iterator[PackedMember]:
        kept = (packed for packed in _packed(stored) if packed.member.path not in removed)
        return heapq.merge(kept, new, key=_path_bytes)

    content = _NewContent(
        packing,
        members,
        [*old, *shards_of(blobs)],
        blobs,
        len(new),
        keeps_shards=changes.keeps_shards or not removed,
    )
    return _write(name, content, context)


def merge_artifacts(
    name: str,
    sides: tuple[Artifact | None, Artifact, Artifact],
    choose: ChooseSide,
    context: StageContext,
) -> StagedEntry:
    """Merge by member path. `sides` are the base, ours and theirs. Both have the same kind and compression."""
    base, ours, theirs = sides
    mine, other = list(ours.shards()), list(theirs.shards())
    numbers = {shard.hash: number for number, shard in reversed(list(enumerate(mine)))}
    shards = list(mine)
    their_numbers = []
    for shard in other:
        if shard.hash not in numbers:
            numbers[shard.hash] = len(shards)
            shards.append(shard)
        their_numbers.append(numbers[shard.hash])

    def members() -> Iterator[PackedMember]:
        for path, before, here, there in _aligned(_packed(base), _packed(ours), _packed(theirs)):
            kept = merge_item(path, (_content(before), _content(here), _content(there)), choose)
            if kept == "ours" and here is not None:
                yield here
            elif kept == "theirs" and there is not None:
                yield replace(there, member=replace(there.member, shard=their_numbers[there.member.shard]))

    packing = Packing(ours.entry.kind, ours.entry.compression)
    return _write(name, _NewContent(packing, members, shards, keeps_shards=False), context)


def _check_paths(stored: Artifact, added: Sequence[str], removed: Collection[str]) -> None:
    stored.prepare([*added, *removed])
    for path in removed:
        stored.member(path)  # raises with similar paths
    for path in added:
        if path in stored and path not in removed:
            raise AlreadyExistsError(
                f"artifact {stored.name!r} already has a member {path!r}",
                hint="Remove it first to replace it, or choose another path.",
            )


def _write(name: str, content: _NewContent, context: StageContext) -> StagedEntry:
    numbers = range(len(content.shards))
    kept = numbers if content.keeps_shards else sorted({packed.member.shard for packed in content.members()})
    new_numbers = {old: new for new, old in enumerate(kept)}
    renumbered = (
        replace(packed, member=replace(packed.member, shard=new_numbers[packed.member.shard]))
        for packed in content.members()
    )
    index = write_index(renumbered, len(kept), context.directory / f"{name}.members")
    index_blob = StagedBlob(index.path, fingerprint_file(index.path))
    entry = ArtifactEntry(
        kind=content.packing.kind,
        shards=ShardList(),
        index=index_blob.fingerprint.blob,
        index_footer=index.footer,
        member_count=index.member_count,
        compression=content.packing.compression,
    )
    shards = tuple(content.shards[number] for number in kept)
    return StagedEntry(entry.payload(), shards, (*content.blobs, index_blob), content.added_count)


def _packed(artifact: Artifact | None) -> Iterator[PackedMember]:
    """Yield the members of a stored artifact, as the writer of an index takes them."""
    if artifact is None:
        return
    count = artifact.entry.shards.shard_count
    for member, chunks in artifact.scan():
        if member.shard >= count:
            raise CorruptError(f"{member.path!r} of artifact {artifact.name!r} is in shard {member.shard} of {count}")
        yield PackedMember(member, chunks)


def _aligned(
    *sides: Iterator[PackedMember],
) -> Iterator[tuple[str, PackedMember | None, PackedMember | None, PackedMember | None]]:
    """Yield the members of the base, ours and theirs with the same path together, in order of the paths."""
    heads = [next(side, None) for side in sides]
    while any(heads):
        path = min((head.member.path for head in heads if head is not None), key=str.encode)
        found = [head if head is not None and head.member.path == path else None for head in heads]
        heads = [
            next(side, None) if here is not None else head for side, here, head in zip(sides, found, heads, strict=True)
        ]
        yield path, found[0], found[1], found[2]


def _content(packed: PackedMember | None) -> object:
    """Return a value that is equal for equal content, wherever it is stored."""
    if packed is None:
        return None
    member: Member = packed.member
    return member.size_bytes, tuple(chunk.xxh3 for chunk in packed.chunks) or member.xxh3


def _path_bytes(packed: PackedMember) -> bytes:
    return packed.member.path.encode()
