"""Groups of files that are chunks of one episode, checked for gaps.

A chunk manifest represents the files that it lists. Chunks without a manifest must state their number, because a
missing last chunk would go unnoticed. Implements "Episodes" of docs/specs/publish.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from warpdata.errors import CorruptError, InvalidSourceError, LimitExceededError, UnsupportedError
from warpdata.formats.wshard import (
    ChunkEntry,
    ChunkManifest,
    ChunkPlace,
    is_chunk_manifest,
    load_chunk_manifest,
    validate_chunk_continuity,
)
from warpdata.kinds import StagedBlob
from warpdata.kinds.episodes.index_writer import EpisodeDescription
from warpdata.primitives.paths import check_inside

__all__ = ["ChunkManifestFile", "EpisodeFile", "group_chunks", "resolve_manifests"]

EpisodeFile: TypeAlias = tuple[EpisodeDescription, StagedBlob]
"""A validated file of an episode."""


@dataclass(frozen=True, slots=True)
class ChunkManifestFile:
    """A valid chunk manifest and its path."""

    path: Path
    manifest: ChunkManifest

    def file(self, entry: ChunkEntry) -> Path:
        return self.path.parent / entry.uri


def resolve_manifests(
    paths: Sequence[Path], *, follow_links: bool = False
) -> tuple[list[Path], list[ChunkManifestFile]]:
    """Return the episode files of `paths` and of the manifests among them, each once, and the manifests.

    Without `follow_links`, refuse a chunk that is a link out of the manifest's directory, unless `paths` has it.
    """
    given = {path.resolve() for path in paths if not is_chunk_manifest(path)}
    files: list[Path] = []
    manifests: dict[str, ChunkManifestFile] = {}
    for path in paths:
        if not is_chunk_manifest(path):
            files.append(path)
            continue
        listing = _load_manifest(path)
        name = listing.manifest.episode_id
        if name in manifests:
            raise InvalidSourceError(f"episode {name!r} has two manifests: {manifests[name].path} and {path}")
        manifests[name] = listing
        for entry in listing.manifest.chunks:
            file = listing.file(entry)
            if not file.is_file():
                raise InvalidSourceError(
                    f"chunk {entry.index} of the episode {name!r} is missing: {path} lists {entry.uri}",
                    hint="Put the file beside its manifest.",
                )
            if file.resolve() not in given:
                if not follow_links:
                    check_inside([file], path.parent)
                given.add(file.resolve())
                files.append(file)
    return files, list(manifests.values())


def group_chunks(found: Sequence[EpisodeFile], manifests: Sequence[ChunkManifestFile]) -> list[tuple[EpisodeFile, ...]]:
    """Return the files of each episode, in order. Episodes keep the order of their first files.

    Raise `InvalidSourceError` with a chunk that is missing, duplicate or wrong.
    """
    listed = {listing.file(entry).resolve(): listing for listing in manifests for entry in listing.manifest.chunks}
    groups: dict[str | int, list[EpisodeFile]] = {}
    for number, (row, blob) in enumerate(found):
        listing = listed.get(blob.path.resolve())
        name = listing.manifest.episode_id if listing else row.id if row.is_chunk else number
        groups.setdefault(name, []).append((row, blob))
    by_name = {listing.manifest.episode_id: listing for listing in manifests}
    out = []
    for key, files in groups.items():
        if isinstance(key, int):
            out.append(tuple(files))
        elif key in by_name:
            out.append(_order_by_manifest(files, by_name[key]))
        else:
            out.append(_order_by_index(key, files))
    return out


def _load_manifest(path: Path) -> ChunkManifestFile:
    try:
        manifest = load_chunk_manifest(path)
        validate_chunk_continuity(manifest)
    except (CorruptError, UnsupportedError, LimitExceededError) as error:
        raise InvalidSourceError(f"{path} is not a valid chunk manifest: {error.message}") from error
    return ChunkManifestFile(path, manifest)


def _order_by_manifest(files: Sequence[EpisodeFile], listing: ChunkManifestFile) -> tuple[EpisodeFile, ...]:
    """Order files by their manifest. Check that each is the listed file, and that no other belongs to the episode."""
    name = listing.manifest.episode_id
    by_path: dict[Path, EpisodeFile] = {}
    for row, blob in files:
        if by_path.setdefault(blob.path.resolve(), (row, blob))[1] is not blob:
            raise InvalidSourceError(f"{blob.path}, a chunk of the episode {name!r}, was given twice")
    out = []
    for entry in listing.manifest.chunks:
        row, blob = by_path.pop(listing.file(entry).resolve())
        if blob.fingerprint.blob.hash != entry.sha256:
            raise InvalidSourceError(
                f"{blob.path} is not the file that {listing.path.name} lists as chunk {entry.index}: "
                f"its sha256 is {blob.fingerprint.blob.hash}",
                hint="Write the manifest again after changing a chunk.",
            )
        place = (entry.index, entry.first_step)
        stated = place if row.chunk is None else (row.chunk.index, row.chunk.first_step)
        if (row.id, row.length) != (name, entry.length) or stated != place:
            raise InvalidSourceError(
                f"{blob.path} has {row.length} steps of {row.id!r} from step {stated[1]} on, but {listing.path.name} "
                f"lists {entry.length} steps of {name!r} from step {entry.first_step} on as chunk {entry.index}"
            )
        out.append((row, blob))
    for row, blob in by_path.values():
        raise InvalidSourceError(f"{blob.path} is a chunk of {row.id!r} that {listing.path} does not list")
    return tuple(out)


def _order_by_index(name: str, files: Sequence[EpisodeFile]) -> tuple[EpisodeFile, ...]:
    """Order files by the chunk index that each states."""
    total = _total(name, files)
    by_index: dict[int, EpisodeFile] = {}
    for row, blob in files:
        index = _place(row).index or 0
        if index in by_index:
            raise InvalidSourceError(
                f"chunk {index} of the episode {name!r} was given twice: {by_index[index][1].path} and {blob.path}"
            )
        by_index[index] = (row, blob)
    missing = list(islice((index for index in range(total) if index not in by_index), 1))
    if missing:
        raise InvalidSourceError(
            f"chunk {missing[0]} of the episode {name!r} is missing: {len(files)} of {total} were given",
            hint="Pass all chunks of an episode together.",
        )
    out = tuple(by_index[index] for index in sorted(by_index))
    _check_steps(name, out, total)
    return out


def _total(name: str, files: Sequence[EpisodeFile]) -> int:
    """Return the number of chunks that the files state."""
    totals = {total: blob.path for row, blob in files if (total := _place(row).total) is not None}
    if not totals:
        row, blob = files[0]
        raise InvalidSourceError(
            f"{blob.path} is chunk {_place(row).index} of the episode {name!r}, but no file states their number",
            hint=f"Publish its manifest too: {name}_manifest.wshard.",
        )
    if len(totals) > 1:
        listed = " and ".join(f"{total} in {path}" for total, path in totals.items())
        raise InvalidSourceError(f"the chunks of episode {name!r} state different numbers of chunks: {listed}")
    return next(iter(totals))


def _check_steps(name: str, files: Sequence[EpisodeFile], total: int) -> None:
    entries = []
    for row, blob in files:
        place = _place(row)
        last = place.first_step + row.length - 1
        digest = blob.fingerprint.blob.hash
        entries.append(ChunkEntry(place.index or 0, str(blob.path), digest, place.first_step, last, row.length, total))
    steps = sum(row.length for row, _ in files)
    try:
        validate_chunk_continuity(ChunkManifest(name, files[0][0].env_id, total, steps, tuple(entries)))
    except CorruptError as error:
        raise InvalidSourceError(f"the chunks are not contiguous: {error.message}") from error


def _place(row: EpisodeDescription) -> ChunkPlace:
    assert row.chunk is not None, "only chunks are ordered"
    return row.chunk
