"""Artifacts on their way into a version: packed or scanned, indexed, and checked against the tables bound to them."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.kinds.artifacts import (
    COMPRESSIONS,
    KINDS,
    ArtifactInput,
    MemberSource,
    PackedMember,
    PackedShard,
    ShardSpec,
    cut_by_content,
    cut_shards,
    list_sources,
    scan_tar,
    write_index,
)
from warpdata.primitives.hashing import fingerprint_file
from warpdata.primitives.progress import Progress, ProgressCounter
from warpdata.publish.bindings import Target, check_binding, some_paths
from warpdata.publish.plan import Staged, StagedArtifact, StagedBlob, StagedFile
from warpdata.publish.upload import in_parallel
from warpdata.repository.manifest import Binding

__all__ = ["ArtifactSpec", "stage_media"]

_MAGIC = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class ArtifactSpec:
    """What `add_artifact` was given. `prefix` None: as bound columns write the paths."""

    source: ArtifactInput
    kind: str
    compression: str | None
    shard_bytes: int | None
    prefix: str | None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInputError(f"kind={self.kind!r} is not known", hint=f"Known: {', '.join(KINDS)}.")
        if self.compression not in (None, *COMPRESSIONS):
            raise BadInputError(f"compression={self.compression!r} is not known", hint="Use 'zstd', or leave it out.")
        if self.compression and self.kind != "tar_shards":
            raise BadInputError(f"{self.kind} are stored as they are, so they can not be compressed here")
        if self.shard_bytes is not None and self.shard_bytes < 1:
            raise BadInputError(f"shard_bytes={self.shard_bytes!r} is not a size")


def stage_media(
    tables: Mapping[str, Sequence[StagedFile]],
    specs: Mapping[str, ArtifactSpec],
    bindings: Sequence[Binding],
    folder: Path,
    progress: Progress,
) -> Staged:
    """Every artifact measured and indexed, every binding checked against what it binds."""
    for binding in bindings:
        _check_ends(binding, tables, specs)
    artifacts = {}
    for name, spec in specs.items():
        bound = [binding for binding in bindings if binding.artifact == name]
        named = [path for binding in bound for path in some_paths(tables[binding.table], binding.column)]
        artifacts[name], members = _stage_artifact(name, spec, folder, named, progress)
        paths = {packed.member.path for packed in members} if bound else set()
        target = Target(
            contains=paths.__contains__,
            shard_bytes=[shard.fingerprint.blob.byte_size for shard in artifacts[name].shards],
            example=members[0].member.path,
        )
        for binding in bound:
            check_binding(binding, tables[binding.table], target)
    return Staged(tables, artifacts, tuple(bindings))


def _check_ends(binding: Binding, tables: Mapping[str, object], specs: Mapping[str, object]) -> None:
    for what, name, there in (("table", binding.table, tables), ("artifact", binding.artifact, specs)):
        if name not in there:
            raise BadInputError(
                f"a binding names {what} {name!r}, which is not being published",
                hint=f"There are: {', '.join(sorted(there)) or 'none'}.",
            )


def _stage_artifact(
    name: str, spec: ArtifactSpec, folder: Path, named: Iterable[str], progress: Progress
) -> tuple[StagedArtifact, list[PackedMember]]:
    """Read every file once: what each shard will be, and where in it each member lies.

    `named` are some paths from bound columns, by which the prefix of member paths is chosen.
    """
    parts = _existing(spec, progress) if spec.kind == "webdataset_shards" else _to_pack(name, spec, named, progress)
    members = sorted(
        (member for _, packed in parts for member in packed.members), key=lambda found: found.member.path.encode()
    )
    if not members:
        raise InvalidSourceError(f"artifact {name!r} has no member: {spec.source!s} holds no file")
    index = write_index(members, len(parts), folder / f"{name}.members")
    staged = StagedArtifact(
        kind=spec.kind,
        compression=spec.compression,
        shards=tuple(blob for blob, _ in parts),
        index=StagedBlob(index.path, fingerprint_file(index.path)),
        index_footer=index.footer,
        member_count=index.member_count,
    )
    return staged, members


def _existing(spec: ArtifactSpec, progress: Progress) -> list[tuple[StagedBlob, PackedShard]]:
    """Tar files that are taken byte for byte."""
    files = [source.content for source in list_sources(_expanded(spec.source)) if isinstance(source.content, Path)]
    if not files:
        raise InvalidSourceError(f"{spec.source!s} names no tar file")
    tally = ProgressCounter(progress, "hash", sum(path.stat().st_size for path in files), len(files))

    def scan(numbered: tuple[int, Path]) -> tuple[StagedBlob, PackedShard]:
        number, path = numbered
        packed = scan_tar(path, number, tally.add_bytes)
        tally.finish_file()
        return StagedBlob(path, packed.fingerprint), packed

    return in_parallel(scan, enumerate(files))


def _to_pack(
    name: str, spec: ArtifactSpec, named: Iterable[str], progress: Progress
) -> list[tuple[StagedBlob, PackedShard]]:
    sources = _with_prefix(spec, named)
    if spec.kind == "files":
        recipes = [ShardSpec((source,), number, None, is_archive=False) for number, source in enumerate(sources)]
    else:
        parts = cut_by_content(sources) if spec.shard_bytes is None else cut_shards(sources, spec.shard_bytes)
        recipes = [ShardSpec(tuple(part), number, spec.compression) for number, part in enumerate(parts)]
    tally = ProgressCounter(progress, "hash", sum(source.size_bytes for source in sources), len(recipes))

    def measure(recipe: ShardSpec) -> tuple[StagedBlob, PackedShard]:
        packed = recipe.measure(tally.add_bytes)
        tally.finish_file()
        return _staged(name, recipe, packed), packed

    return in_parallel(measure, recipes)


def _staged(name: str, recipe: ShardSpec, packed: PackedShard) -> StagedBlob:
    content = recipe.sources[0].content
    if not recipe.is_archive and isinstance(content, Path):
        return StagedBlob(content, packed.fingerprint)
    suffix = ".tar.zst" if recipe.compression else ".tar"
    called = Path(name, f"{recipe.number:06d}{suffix}" if recipe.is_archive else recipe.sources[0].path)
    return StagedBlob(called, packed.fingerprint, recipe)


def _with_prefix(spec: ArtifactSpec, named: Iterable[str]) -> Sequence[MemberSource]:
    """Members are named relative to the folder, or, if bound columns write it so, with its own name in front."""
    source = _expanded(spec.source)
    if spec.prefix is not None:
        return list_sources(source, spec.prefix)
    sources = list_sources(source)
    if not isinstance(source, str | Path):
        return sources
    front = f"{Path(source).expanduser().resolve().name}/"
    paths = {member.path for member in sources}
    if any(path not in paths and path.startswith(front) and path.removeprefix(front) in paths for path in named):
        return list_sources(source, front)
    return sources


def _expanded(source: ArtifactInput) -> ArtifactInput:
    """Globs become the files they match."""
    if isinstance(source, str) and _MAGIC & set(source) and not Path(source).exists():
        found = sorted(glob.glob(str(Path(source).expanduser()), recursive=True))  # noqa: PTH207
        if not found:
            raise InvalidSourceError(f"no file matches {source!r}", hint="Check the path; quote globs in a shell.")
        return found
    return source
