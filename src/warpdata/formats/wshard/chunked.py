"""Writing of an episode in several files: chunks that are complete files, and a manifest that lists them.

The writer owns the episode: a second one is refused, and a later one continues only on request. Implements "Chunked
episodes" of docs/specs/wshard.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from warpdata.errors import AlreadyExistsError, BadInputError, ConflictError, CorruptError, LimitExceededError
from warpdata.formats.wshard.chunk_layout import ChunkLayout, episode_layout, file_layout, find_disagreement
from warpdata.formats.wshard.chunk_manifest import (
    META_MANIFEST,
    ChunkEntry,
    ChunkManifest,
    chunk_uri,
    encode_entry,
    encode_manifest,
    is_file_name,
    manifest_name,
)
from warpdata.formats.wshard.codecs import CompressionName, parse_compression
from warpdata.formats.wshard.container import ALIGNMENTS, JSON_CONTENT, ROLE_MANIFEST
from warpdata.formats.wshard.container_writer import ContainerOptions, plan_bytes, write_container
from warpdata.formats.wshard.load import load_wshard
from warpdata.formats.wshard.model import ChunkPlace, Episode, check_episodes
from warpdata.formats.wshard.reader import open_file
from warpdata.formats.wshard.recovery import PARTIAL, claim_journal
from warpdata.formats.wshard.save import save_wshard
from warpdata.formats.wshard.source import PathLike
from warpdata.limits import WSHARD_MAX_CHUNKS, WSHARD_MAX_JSON_BYTES
from warpdata.primitives.hashing import fingerprint_file
from warpdata.primitives.lock_file import LockFile
from warpdata.primitives.paths import check_path
from warpdata.primitives.reprs import short_repr

__all__ = ["ChunkedEpisodeWriter"]

_MANIFEST_HEAD_BYTES = 4096
"""Bytes of a manifest for everything but its entries, without the two names."""
_MAX_FILE_NAME_BYTES = 255


class ChunkedEpisodeWriter:
    """Writes the chunks of one episode into `directory`, in order, and then their manifest.

    A chunk is an `Episode` of up to `chunk_size_t` steps with the same environment, rate and channels as the first
    one. `total_chunks`, if known, is written into each chunk; the last chunk always has it. Further options are those
    of `save_wshard`. `resume` continues after the chunks in the directory; without it, they are an error. Also a
    context manager, which writes the manifest unless the block raises.
    """

    def __init__(
        self,
        directory: PathLike,
        episode_id: str,
        *,
        chunk_size_t: int = 1000,
        compression: CompressionName = "none",
        total_chunks: int | None = None,
        per_block: Mapping[str, CompressionName] | None = None,
        alignment: int = 64,
        time_chunk_steps: int = 0,
        seal: bool | None = None,
        resume: bool = False,
    ) -> None:
        _check_id(episode_id)
        for name, count, least in (("chunk_size_t", chunk_size_t, 1), ("time_chunk_steps", time_chunk_steps, 0)):
            if type(count) is not int or count < least:
                raise BadInputError(f"{name}={count!r} is not a number of steps from {least} on")
        if total_chunks is not None and (type(total_chunks) is not int or not 0 < total_chunks <= WSHARD_MAX_CHUNKS):
            raise BadInputError(f"total_chunks={total_chunks!r} is not a number from 1 to {WSHARD_MAX_CHUNKS}")
        if alignment not in ALIGNMENTS:
            raise BadInputError(f"the alignment {alignment} is not one of 0, 16, 32, 64")
        for value in (compression, *(per_block or {}).values()):
            parse_compression(value)
        self._directory, self._id, self._max_steps, self._total = (
            check_path(directory),
            episode_id,
            chunk_size_t,
            total_chunks,
        )
        self._options: dict[str, Any] = {
            "compression": compression,
            "per_block": per_block,
            "alignment": alignment,
            "time_chunk_steps": time_chunk_steps,
            "seal": seal,
        }
        self._owned: LockFile | None = None
        self._layout: ChunkLayout | None = None
        self._chunks: list[ChunkEntry] = []
        self._manifest: ChunkManifest | None = None
        if resume:
            self._find_written()
        else:
            self._refuse_existing()

    @property
    def manifest_path(self) -> Path:
        """The path of the manifest, which exists after `finalize_manifest`."""
        return self._directory / manifest_name(self._id)

    @property
    def step_count(self) -> int:
        """The number of steps in all chunks so far."""
        return sum(entry.length for entry in self._chunks)

    def __repr__(self) -> str:
        return short_repr("ChunkedEpisodeWriter", str(self._directory), self._id, chunks=len(self._chunks))

    def write_chunk(self, chunk: Episode) -> ChunkEntry:
        """Save the next chunk. Its id must be that of the episode; its `chunk` field is set here."""
        layout = self._check(chunk)
        index, first = len(self._chunks), self.step_count
        uri = chunk_uri(self._id, index)
        path = self._directory / uri
        self._claim()
        if path.exists():
            raise AlreadyExistsError(f"{path} already exists", hint="Pass resume=True to continue after it.")
        self._reopen()
        save_wshard(replace(chunk, chunk=ChunkPlace(index, self._total, first)), path, **self._options)
        digest = fingerprint_file(path).blob.hash
        entry = ChunkEntry(index, uri, digest, first, first + chunk.length - 1, chunk.length, self._total or 0)
        self._layout = self._layout or layout
        self._chunks.append(entry)
        return entry

    def finalize_manifest(self) -> ChunkManifest:
        """Write `{episode_id}_manifest.wshard` and return its content. The last chunk states the number of chunks."""
        if self._manifest is not None:
            return self._manifest
        count = len(self._chunks)
        if not count or (self._total is not None and self._total != count):
            raise BadInputError(f"{count} chunks were written, {self._total or 'at least 1'} were expected")
        self._claim()
        self._state_total(count)
        chunks = tuple(replace(entry, total=count) for entry in self._chunks)
        env_id = self._layout.env_id if self._layout is not None else ""
        manifest = ChunkManifest(self._id, env_id, count, self.step_count, chunks)
        plan = plan_bytes(META_MANIFEST, encode_manifest(manifest), JSON_CONTENT)
        write_container(self.manifest_path, [plan], ContainerOptions(role=ROLE_MANIFEST))
        self._manifest = manifest
        self._lock_path.unlink(missing_ok=True)
        self.close()
        return manifest

    def close(self) -> None:
        """Give up the episode. Without a manifest, its chunks stay for a writer with `resume=True`."""
        owned, self._owned = self._owned, None
        if owned is not None:
            if not self._chunks and owned.is_at(self._lock_path):
                self._lock_path.unlink()
            owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Write the manifest if the block ended well and wrote chunks."""
        try:
            if kind is None and self._chunks:
                self.finalize_manifest()
        finally:
            self.close()

    @property
    def _lock_path(self) -> Path:
        return self.manifest_path.with_name(self.manifest_path.name + PARTIAL)

    def _check(self, chunk: Episode) -> ChunkLayout:
        """Check everything that a later chunk, the manifest or a reader would refuse."""
        check_episodes(chunk)
        if self._manifest is not None:
            raise BadInputError("the manifest is written", hint="Pass resume=True to a new writer to continue.")
        chunk.check()
        number = len(self._chunks)
        if chunk.id != self._id or not 1 <= chunk.length <= self._max_steps:
            raise BadInputError(
                f"the chunk has the id {chunk.id!r} and {chunk.length} steps; {self._id!r} and 1 to "
                f"{self._max_steps} steps were expected"
            )
        layout = episode_layout(chunk)
        problem = find_disagreement(self._layout, layout) if self._layout is not None else None
        if problem is not None:
            raise BadInputError(f"chunk {number} {problem}, unlike the first chunk")
        if self._total is not None and number >= self._total:
            raise BadInputError(f"total_chunks is {self._total}, and this is one more")
        entry = ChunkEntry(number, chunk_uri(self._id, number), "0" * 64, 2**40, 2**40, 2**40, WSHARD_MAX_CHUNKS)
        head_bytes = _MANIFEST_HEAD_BYTES + 6 * len(self._id) + 6 * len(chunk.env_id)
        is_listed = number < WSHARD_MAX_CHUNKS
        if not is_listed or head_bytes + (number + 1) * (len(encode_entry(entry)) + 1) > WSHARD_MAX_JSON_BYTES:
            raise LimitExceededError(f"a manifest cannot list more than {number} chunks of {self._id!r}")
        return layout

    def _written(self) -> list[tuple[int, Path]]:
        """Return the chunks of this episode in the directory, by index."""
        if not self._directory.is_dir():
            return []
        pattern = re.compile(re.escape(self._id) + r"_chunk_(\d{4,6})\.wshard")
        found = ((pattern.fullmatch(path.name), path) for path in self._directory.iterdir())
        return sorted((int(match[1]), path) for match, path in found if match)

    def _refuse_existing(self) -> None:
        existing = [path for _, path in self._written()] or [path for path in (self.manifest_path,) if path.exists()]
        if existing:
            hint = "Pass resume=True to continue it, or choose another directory or id."
            raise AlreadyExistsError(f"the episode {self._id!r} already exists: {existing[0]}", hint=hint)

    def _find_written(self) -> None:
        """Continue after the chunks in the directory, which must be complete and alike."""
        stated: list[int | None] = []
        for number, (index, path) in enumerate(self._written()):
            if index != number:
                raise CorruptError(f"chunk {number} of the episode {self._id!r} is missing in {self._directory}")
            with open_file(path) as file:
                info, layout = file.info, file_layout(file)
            first = self.step_count
            place = info.chunk if info is not None else None
            if info is None or place is None or (info.id, place.index, place.first_step) != (self._id, index, first):
                raise CorruptError(f"{path} is not chunk {index} of the episode {self._id!r} from step {first} on")
            self._layout = self._layout or layout
            problem = find_disagreement(self._layout, layout)
            if problem is not None:
                raise CorruptError(f"{path} {problem}")
            digest, last = fingerprint_file(path).blob.hash, first + info.length - 1
            self._chunks.append(ChunkEntry(index, path.name, digest, first, last, info.length, place.total or 0))
            stated.append(place.total)
        self._adopt_total(stated)

    def _adopt_total(self, stated: list[int | None]) -> None:
        """Take over a promised number of chunks. The one that the last chunk alone states is not a promise."""
        promised = stated[0] if stated and stated[0] is not None and (len(stated) > 1 or stated[0] > 1) else None
        if promised is not None and self._total not in (None, promised):
            raise BadInputError(f"total_chunks is {self._total}, but the chunks say {promised}")
        self._total = promised if promised is not None else self._total

    def _claim(self) -> None:
        """Own the episode, and check that no other writer has added to it."""
        if self._owned is not None and self._owned.fd >= 0:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        owned = claim_journal(self._lock_path, os.O_RDWR | os.O_CREAT)
        if len(self._written()) != len(self._chunks):
            self._lock_path.unlink(missing_ok=True)
            owned.close()
            raise ConflictError(f"another writer has added chunks to the episode {self._id!r}")
        self._owned = owned

    def _reopen(self) -> None:
        """Remove the manifest of an episode that continues, and the total that its last chunk states."""
        if self._chunks and self._total is None:
            self.manifest_path.unlink(missing_ok=True)
            self._state_total(None)

    def _state_total(self, total: int | None) -> None:
        """Write the number of chunks into the last chunk, or remove it, unless it is already so."""
        entry = self._chunks[-1]
        if (entry.total or None) == total:
            return
        path = self._directory / entry.uri
        place = ChunkPlace(entry.index, total, entry.first_step)
        save_wshard(replace(load_wshard(path), chunk=place), path, **self._options)
        self._chunks[-1] = replace(entry, sha256=fingerprint_file(path).blob.hash, total=total or 0)


def _check_id(episode_id: object) -> None:
    """Refuse an id of which a file name would be too long, or not a name, before the first chunk."""
    if not isinstance(episode_id, str) or not is_file_name(episode_id):
        raise BadInputError(f"episode_id={episode_id!r} is not valid for a chunked episode, which names files")
    last, lock = chunk_uri(episode_id, WSHARD_MAX_CHUNKS - 1), manifest_name(episode_id) + PARTIAL
    try:
        is_short = len(lock.encode()) <= _MAX_FILE_NAME_BYTES
    except UnicodeEncodeError as error:
        raise BadInputError(f"episode_id={episode_id!r} is not Unicode: {error}") from error
    if not is_file_name(last) or not is_short:
        raise BadInputError(
            f"the episode_id {episode_id[:40]}… has {len(episode_id)} characters, too many for the names of its files",
            hint="A name of 180 ASCII characters fits.",
        )
