"""Artifacts on their way into a version: packed or scanned, hashed and indexed. Packed shards are written lazily.

An artifact of another version keeps its blobs. Those that the store lacks are copied from the store that has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.kinds import StageContext, StagedBlob, StagedEntry, copied_blob, shards_of
from warpdata.kinds.artifacts.artifact import Artifact
from warpdata.kinds.artifacts.entry import ArtifactEntry
from warpdata.kinds.artifacts.index_pages import PackedMember, write_index
from warpdata.kinds.artifacts.pack_work import pack_by_job
from warpdata.kinds.artifacts.source_files import FilesInput, MemberSource, list_sources
from warpdata.kinds.artifacts.tar_pack import COMPRESSIONS, PackedShard, ShardSpec, cut_by_content, cut_shards
from warpdata.kinds.artifacts.tar_scan import scan_tar
from warpdata.primitives.hashing import fingerprint_file
from warpdata.primitives.parallel import IO_POOL, disk_threads
from warpdata.primitives.paths import check_inside, expand_glob, glob_root, is_glob
from warpdata.primitives.progress import Progress, ProgressCounter
from warpdata.repository.manifest import ARTIFACT_KINDS, ShardList
from warpdata.storage import BlobCopy

__all__ = ["ArtifactInput", "ArtifactSpec", "Packing", "StagedArtifact", "pack_sources", "stage_artifact"]

ArtifactInput: TypeAlias = FilesInput | Artifact
"""Files to pack, or an artifact of any version, which is published as it is."""


@dataclass(frozen=True, slots=True)
class ArtifactSpec:
    """An artifact to publish; without a source, it has no files.

    With `prefix` None, member paths follow the values of bound columns.
    """

    source: ArtifactInput | None
    kind: str = "tar_shards"
    compression: str | None = None
    shard_bytes: int | None = None
    prefix: str | None = None
    follow_links: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ARTIFACT_KINDS:
            raise BadInputError(f"kind={self.kind!r} is not known", hint=f"Known: {', '.join(ARTIFACT_KINDS)}.")
        if self.compression not in (None, *COMPRESSIONS):
            raise BadInputError(f"compression={self.compression!r} is not known", hint="Use 'zstd', or leave it out.")
        if self.compression and self.kind != "tar_shards":
            raise BadInputError(f"{self.kind} are stored as they are and cannot be compressed")
        if self.shard_bytes is not None and self.shard_bytes < 1:
            raise BadInputError(f"shard_bytes={self.shard_bytes!r} is not a size")
        if isinstance(self.source, Artifact):
            has_options = any(option is not None for option in (self.compression, self.shard_bytes, self.prefix))
            if has_options or self.kind not in ("tar_shards", self.source.entry.kind):
                raise BadInputError(
                    f"artifact {self.source.name!r} is published as it is, so packing options do not apply",
                    hint="Leave out kind, compression, shard_bytes and prefix.",
                )


@dataclass(frozen=True, slots=True)
class Packing:
    """The form of new shards, and the number of the first one."""

    kind: str
    compression: str | None = None
    shard_bytes: int | None = None
    first_shard: int = 0


@dataclass(frozen=True, slots=True)
class StagedArtifact(StagedEntry):
    joined_paths: bytes = b""
    """All member paths, separated by zero bytes: there may be millions, and they stay until the publish ends."""
    stored: Artifact | None = None
    """The artifact of another version, if this one is published as it is. It has its own index."""

    def paths(self) -> set[str]:
        """Return the paths of all packed members."""
        return set(self.joined_paths.decode().split("\0"))


def stage_stored(artifact: Artifact) -> StagedArtifact:
    """Stage an artifact of another version. Reads only the pages of its shard list."""
    entry = artifact.entry
    shards = tuple(artifact.shards())
    blobs = [*dict.fromkeys(shard.blob for shard in shards), entry.index]
    staged = tuple(copied_blob(artifact.name, BlobCopy(artifact.reader, blob)) for blob in blobs)
    payload = replace(entry, shards=ShardList()).payload()
    return StagedArtifact(payload, shards, staged, entry.member_count, stored=artifact)


def stage_artifact(name: str, spec: ArtifactSpec, context: StageContext) -> StagedArtifact:
    """Read every file once, to learn each shard's fingerprint and each member's offset."""
    if isinstance(spec.source, Artifact):
        return stage_stored(spec.source)
    if spec.source is None:
        parts = []
    elif spec.kind == "webdataset_shards":
        parts = _scan_tars(spec, context.progress)
    else:
        sources = _with_prefix(spec, context.referenced_paths(name))
        parts = pack_sources(name, sources, Packing(spec.kind, spec.compression, spec.shard_bytes), context)
    members = sorted(
        (member for _, members in parts for member in members), key=lambda packed: packed.member.path.encode()
    )
    if not members and spec.source is not None:
        raise InvalidSourceError(f"artifact {name!r} has no members: {spec.source!s} contains no file")
    index = write_index(members, len(parts), context.directory / f"{name}.members")
    index_blob = StagedBlob(index.path, fingerprint_file(index.path))
    shards = tuple(blob for blob, _ in parts)
    entry = ArtifactEntry(
        kind=spec.kind,
        shards=ShardList(),
        index=index_blob.fingerprint.blob,
        index_footer=index.footer,
        member_count=index.member_count,
        compression=spec.compression,
    )
    paths = b"\0".join(packed.member.path.encode() for packed in members)
    return StagedArtifact(entry.payload(), shards_of(shards), (*shards, index_blob), len(members), paths)


def _scan_tars(spec: ArtifactSpec, progress: Progress) -> list[tuple[StagedBlob, tuple[PackedMember, ...]]]:
    """Find the members of tar files that are published byte for byte."""
    files = [
        source.content
        for source in list_sources(_expanded(spec), follow_links=spec.follow_links)
        if isinstance(source.content, Path)
    ]
    if not files:
        raise InvalidSourceError(f"{spec.source!s} names no tar file")
    counter = ProgressCounter(progress, "hash", sum(path.stat().st_size for path in files), len(files))

    def scan(numbered: tuple[int, Path]) -> tuple[StagedBlob, tuple[PackedMember, ...]]:
        number, path = numbered
        packed = scan_tar(path, number, counter.add_bytes)
        counter.finish_file()
        return StagedBlob(path, packed.fingerprint), packed.members

    return IO_POOL.map_all(scan, enumerate(files), limit=disk_threads())


def pack_sources(
    name: str, sources: Sequence[MemberSource], packing: Packing, context: StageContext
) -> list[tuple[StagedBlob, tuple[PackedMember, ...]]]:
    """Cut files into shards, and measure each. They are written when they are uploaded, or by the job of the publish.

    Return each shard with its members.
    """
    is_archive, size = packing.kind != "files", packing.shard_bytes
    parts = [[source] for source in sources]
    if is_archive:
        parts = cut_by_content(sources) if size is None else cut_shards(sources, size)
    shards = [
        ShardSpec(tuple(part), number, packing.compression, is_archive)
        for number, part in enumerate(parts, packing.first_shard)
    ]
    counter = ProgressCounter(context.progress, "hash", sum(source.size_bytes for source in sources), len(shards))
    if context.job is not None:
        return pack_by_job(shards, context.job, counter, lambda shard: _label(name, shard))

    def measure(shard: ShardSpec) -> tuple[StagedBlob, tuple[PackedMember, ...]]:
        packed = shard.measure(counter.add_bytes)
        counter.finish_file()
        return _staged_blob(name, shard, packed), packed.members

    return IO_POOL.map_all(measure, shards, limit=disk_threads())


def _staged_blob(name: str, shard: ShardSpec, packed: PackedShard) -> StagedBlob:
    first = shard.sources[0]
    if not shard.is_archive and isinstance(first.content, Path):
        return StagedBlob(first.content, packed.fingerprint)
    return StagedBlob(_label(name, shard), packed.fingerprint, shard)


def _label(name: str, shard: ShardSpec) -> Path:
    """Return a name of a shard, for messages."""
    suffix = ".tar.zst" if shard.compression else ".tar"
    return Path(name, f"{shard.number:06d}{suffix}" if shard.is_archive else shard.sources[0].path)


def _with_prefix(spec: ArtifactSpec, referenced: Iterable[str]) -> Sequence[MemberSource]:
    """Name members relative to their directory, or with its name in front if bound columns write them so."""
    source = _expanded(spec)
    if spec.prefix is not None:
        return list_sources(source, spec.prefix, follow_links=spec.follow_links)
    sources = list_sources(source, follow_links=spec.follow_links)
    if not isinstance(source, str | Path):
        return sources
    prefix = f"{Path(source).expanduser().resolve().name}/"
    paths = {member.path for member in sources}
    if any(path not in paths and path.removeprefix(prefix) in paths for path in referenced):
        return list_sources(source, prefix, follow_links=spec.follow_links)
    return sources


def _expanded(spec: ArtifactSpec) -> FilesInput:
    """Replace a glob by its matches."""
    source = spec.source
    assert source is not None
    assert not isinstance(source, Artifact), "staged as it is"
    if not isinstance(source, str) or not is_glob(source):
        return source
    found = expand_glob(source)
    if not found:
        raise InvalidSourceError(f"no file matches {source!r}", hint="Check the path; quote globs in a shell.")
    if not spec.follow_links:
        check_inside(found, glob_root(source))
    return found
