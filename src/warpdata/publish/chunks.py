"""Which of the files given are chunks of one episode, and whether they follow one another without a gap.

A manifest of chunks stands for the files it lists. Chunks without one must say themselves how many there are, as
a missing last one can not be seen otherwise. Implements "Episodes" of docs/specs/publish.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from warpdata.errors import CorruptError, InvalidSourceError, LimitExceededError, UnsupportedFormatError
from warpdata.formats.wshard import (
    ChunkEntry,
    ChunkManifest,
    ChunkPlace,
    is_chunk_manifest,
    load_chunk_manifest,
    validate_chunk_continuity,
)
from warpdata.kinds.episodes import EpisodeDescription
from warpdata.publish.plan import StagedBlob

__all__ = ["Found", "Listing", "group_chunks", "resolve_manifests"]

Found: TypeAlias = tuple[EpisodeDescription, StagedBlob]
"""A file that was read whole."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A manifest of chunks, which is whole and in order, and where it lies."""

    path: Path
    manifest: ChunkManifest

    def file(self, entry: ChunkEntry) -> Path:
        return self.path.parent / entry.uri


def resolve_manifests(paths: Sequence[Path]) -> tuple[list[Path], list[Listing]]:
    """The files of episodes among `paths`, and those that manifests among them list, each of these once."""
    given = {path.resolve() for path in paths if not is_chunk_manifest(path)}
    files: list[Path] = []
    listings: dict[str, Listing] = {}
    for path in paths:
        if not is_chunk_manifest(path):
            files.append(path)
            continue
        listing = _listing(path)
        name = listing.manifest.episode_id
        if name in listings:
            raise InvalidSourceError(f"episode {name!r} has two manifests: {listings[name].path} and {path}")
        listings[name] = listing
        for entry in listing.manifest.chunks:
            file = listing.file(entry)
            if not file.is_file():
                raise InvalidSourceError(
                    f"chunk {entry.index} of the episode {name!r} is missing: {path} lists {entry.uri}",
                    hint="Put the file beside its manifest.",
                )
            if file.resolve() not in given:
                given.add(file.resolve())
                files.append(file)
    return files, list(listings.values())


def group_chunks(found: Sequence[Found], listings: Sequence[Listing]) -> list[tuple[Found, ...]]:
    """The files of each episode, in order; an episode stands where the first of its files was given.

    `InvalidSourceError` names a chunk that is missing, there twice, or not what it should be.
    """
    listed = {listing.file(entry).resolve(): listing for listing in listings for entry in listing.manifest.chunks}
    groups: dict[str | int, list[Found]] = {}
    for number, (row, blob) in enumerate(found):
        listing = listed.get(blob.path.resolve())
        name = listing.manifest.episode_id if listing else row.id if row.is_chunk else number
        groups.setdefault(name, []).append((row, blob))
    by_name = {listing.manifest.episode_id: listing for listing in listings}
    out = []
    for key, files in groups.items():
        if isinstance(key, int):
            out.append(tuple(files))
        elif key in by_name:
            out.append(_as_listed(files, by_name[key]))
        else:
            out.append(_as_told(key, files))
    return out


def _listing(path: Path) -> Listing:
    try:
        manifest = load_chunk_manifest(path)
        validate_chunk_continuity(manifest)
    except (CorruptError, UnsupportedFormatError, LimitExceededError) as error:
        raise InvalidSourceError(f"{path} is not a sound manifest of chunks: {error.message}") from error
    return Listing(path, manifest)


def _as_listed(files: Sequence[Found], listing: Listing) -> tuple[Found, ...]:
    """Each file is the one that the manifest means, and there is no other of this episode."""
    name = listing.manifest.episode_id
    by_path: dict[Path, Found] = {}
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
        told = place if row.chunk is None else (row.chunk.index, row.chunk.first_step)
        if (row.id, row.length) != (name, entry.length) or told != place:
            raise InvalidSourceError(
                f"{blob.path} holds {row.length} steps of {row.id!r} from step {told[1]} on, and {listing.path.name} "
                f"lists {entry.length} steps of {name!r} from step {entry.first_step} on as chunk {entry.index}"
            )
        out.append((row, blob))
    for row, blob in by_path.values():
        raise InvalidSourceError(f"{blob.path} is a chunk of {row.id!r} that {listing.path} does not list")
    return tuple(out)


def _as_told(name: str, files: Sequence[Found]) -> tuple[Found, ...]:
    """By what the chunks say of themselves."""
    total = _total(name, files)
    by_index: dict[int, Found] = {}
    for row, blob in files:
        index = _place(row).index or 0
        if index in by_index:
            raise InvalidSourceError(
                f"chunk {index} of the episode {name!r} is there twice: {by_index[index][1].path} and {blob.path}"
            )
        by_index[index] = (row, blob)
    missing = list(islice((index for index in range(total) if index not in by_index), 1))
    if missing:
        raise InvalidSourceError(
            f"chunk {missing[0]} of the episode {name!r} is missing: there are {len(files)} of {total}",
            hint="Give all chunks of an episode at once.",
        )
    out = tuple(by_index[index] for index in sorted(by_index))
    _check_steps(name, out, total)
    return out


def _total(name: str, files: Sequence[Found]) -> int:
    """How many chunks there are, as those say that know it."""
    told = {total: blob.path for row, blob in files if (total := _place(row).total) is not None}
    if not told:
        row, blob = files[0]
        raise InvalidSourceError(
            f"{blob.path} is chunk {_place(row).index} of the episode {name!r}, and nothing says how many there are",
            hint=f"Publish its manifest too: {name}_manifest.wshard.",
        )
    if len(told) > 1:
        said = " and ".join(f"{total} in {path}" for total, path in told.items())
        raise InvalidSourceError(f"the episode {name!r} has different numbers of chunks: {said}")
    return next(iter(told))


def _check_steps(name: str, files: Sequence[Found], total: int) -> None:
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
        raise InvalidSourceError(f"the chunks do not follow one another: {error.message}") from error


def _place(row: EpisodeDescription) -> ChunkPlace:
    assert row.chunk is not None, "only chunks are put in order"
    return row.chunk
