"""Tensors on their way into a version: laid out, cut into shards along tensors, and hashed.

Every byte is read twice, a few megabytes at a time: once to hash it and once to upload it. So a source larger than
memory and free disk can be published. Implements "Published" of docs/specs/tensors.md.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import xxhash

from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.formats.tensors import (
    CanonicalBytes,
    TensorSet,
    artifact_id,
    cut_shards,
    encode_tail,
    leaf_size,
    open_arrays,
    open_tensors,
    tree_root,
)
from warpdata.kinds import StageContext, StagedBlob, StagedEntry, shards_of
from warpdata.kinds.tensors.entry import TensorsEntry
from warpdata.limits import MIB
from warpdata.primitives.hashing import Blob, Fingerprint, fingerprint_file
from warpdata.primitives.parallel import IO_POOL, disk_threads
from warpdata.primitives.progress import ProgressCounter
from warpdata.repository.manifest import ShardList

__all__ = ["TensorsInput", "stage_tensors"]

TensorsInput: TypeAlias = "Mapping[str, Any] | str | os.PathLike[str] | TensorSet"
"""Arrays by name, a file or directory for `open_tensors`, or opened tensors."""

_READ_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True)
class TensorShardSpec:
    """A range of canonical bytes, written when it is uploaded."""

    canonical: CanonicalBytes
    start: int
    end: int

    def write(self, path: Path, expected: Fingerprint) -> Fingerprint:
        """Write the range. Raise `InvalidSourceError` if the tensors changed since they were hashed."""
        quick = xxhash.xxh3_128()
        with path.open("wb") as file:
            for _, data in self.pieces():
                quick.update(data)
                file.write(data)
        if quick.hexdigest() != expected.quick:
            raise InvalidSourceError(f"tensors changed while they were published, in bytes {self.start}…{self.end}")
        return expected

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """Yield (start, bytes), cut at multiples of the read size. The buffer is reused for the next piece."""
        buffer = memoryview(bytearray(min(_READ_BYTES, self.end - self.start)))
        at = self.start
        while at < self.end:
            stop = min(self.end, (at // _READ_BYTES + 1) * _READ_BYTES)
            piece = buffer[: stop - at]
            data_end = min(stop, self.canonical.size)
            self.canonical.read_into(at, piece[: data_end - at])
            piece[data_end - at :] = bytes(stop - data_end)
            yield at, piece
            at = stop


def stage_tensors(name: str, source: TensorsInput, context: StageContext) -> StagedEntry:
    """Read every byte once, to hash each shard and each leaf of the hash tree."""
    art = _opened(name, source)
    canonical = CanonicalBytes(art.replica)
    specs = [TensorShardSpec(canonical, start, end) for start, end in cut_shards(art.index)]
    counter = ProgressCounter(context.progress, "hash", sum(spec.end - spec.start for spec in specs), len(specs))

    def measure(spec: TensorShardSpec) -> tuple[Fingerprint, dict[int, bytes]]:
        done = _measure(spec, counter)
        counter.finish_file()
        return done

    measured = IO_POOL.map_all(measure, specs, limit=disk_threads())
    leaves = _all_leaves(canonical, {leaf: digest for _, found in measured for leaf, digest in found.items()})
    tail = context.directory / f"{name}.tensors"
    tail.write_bytes(encode_tail(canonical.size, art.index_bytes, leaves))
    index = StagedBlob(tail, fingerprint_file(tail))
    shards = tuple(
        StagedBlob(Path(name, f"{number:06d}.bytes"), fingerprint, spec)
        for number, ((fingerprint, _), spec) in enumerate(zip(measured, specs, strict=True))
    )
    identity = artifact_id(art.index_bytes, tree_root(leaves))
    entry = TensorsEntry(ShardList(), index.fingerprint.blob, identity, len(art))
    return StagedEntry(entry.payload(), shards_of(shards), (*shards, index), len(art))


def _opened(name: str, source: TensorsInput) -> TensorSet:
    if isinstance(source, TensorSet):
        art = source
    elif isinstance(source, Mapping):
        art = open_arrays(source)
    elif isinstance(source, str | os.PathLike):
        art = open_tensors(Path(source).expanduser())
    else:
        raise BadInputError(
            f"tensors {name!r} cannot be made from a {type(source).__name__}",
            hint="Pass a mapping of arrays, a .safetensors file, or a directory of them.",
        )
    if not len(art):
        raise InvalidSourceError(f"tensors {name!r} have no tensor: the source is empty")
    return art


def _measure(spec: TensorShardSpec, counter: ProgressCounter) -> tuple[Fingerprint, dict[int, bytes]]:
    """Return the fingerprint of a shard, and the hashes of the leaves that it contains completely."""
    strong, quick = hashlib.sha256(), xxhash.xxh3_128()
    total = spec.canonical.size
    size = leaf_size(total)
    leaves: dict[int, bytes] = {}
    for start, data in spec.pieces():
        strong.update(data)
        quick.update(data)
        for leaf in range(-(-start // size), -(-total // size)):
            first, last = leaf * size - start, min(total, (leaf + 1) * size) - start
            if last > len(data):
                break
            leaves[leaf] = hashlib.sha256(data[first:last]).digest()
        counter.add_bytes(len(data))
    return Fingerprint(Blob(strong.hexdigest(), spec.end - spec.start), quick.hexdigest()), leaves


def _all_leaves(canonical: CanonicalBytes, known: dict[int, bytes]) -> tuple[bytes, ...]:
    """Return all leaf hashes. Leaves that span several shards are read once more."""
    size = leaf_size(canonical.size)

    def hash_one(leaf: int) -> bytes:
        if leaf in known:
            return known[leaf]
        data = memoryview(bytearray(min(size, canonical.size - leaf * size)))
        canonical.read_into(leaf * size, data)
        return hashlib.sha256(data).digest()

    return tuple(IO_POOL.map_all(hash_one, range(-(-canonical.size // size)), limit=disk_threads()))
