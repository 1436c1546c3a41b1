"""Tensors on their way into a version: laid out, cut into shards along tensors, hashed, and written when they are sent.

Every byte is read twice, once to be hashed and once to be sent, a few megabytes at a time, so that a source
larger than memory and free disk can be published. Implements "Published" of docs/specs/tensors.md.
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
    Tensors,
    artifact_id,
    cut_shards,
    encode_tail,
    leaf_size,
    open_arrays,
    open_tensors,
    tree_root,
)
from warpdata.limits import VIEW_PIECE_BYTES
from warpdata.primitives.hashing import Blob, Fingerprint, fingerprint_file
from warpdata.primitives.progress import Progress, ProgressCounter
from warpdata.publish.plan import StagedBlob, StagedTensors
from warpdata.publish.upload import in_parallel

__all__ = ["TensorsInput", "stage_tensors"]

TensorsInput: TypeAlias = "Mapping[str, Any] | str | os.PathLike[str] | Tensors"
"""Arrays by name, a file or folder that `open_tensors` opens, or what it opened."""


@dataclass(frozen=True, slots=True)
class TensorShardSpec:
    """Some canonical bytes, written when they are needed."""

    canonical: CanonicalBytes
    start: int
    end: int

    def write(self, path: Path, promised: Fingerprint) -> None:
        """`InvalidSourceError` if the tensors are no longer those that were measured."""
        quick = xxhash.xxh3_128()
        with path.open("wb") as file:
            for _, data in self.pieces(VIEW_PIECE_BYTES):
                quick.update(data)
                file.write(data)
        if quick.hexdigest() != promised.quick:
            where = f"bytes {self.start}…{self.end}"
            raise InvalidSourceError(f"tensors changed while they were being published, somewhere in {where}")

    def pieces(self, step: int) -> Iterator[tuple[int, memoryview]]:
        """(start, bytes), cut at multiples of `step`. The memory is used again for the next."""
        memory = memoryview(bytearray(min(step, self.end - self.start)))
        at = self.start
        while at < self.end:
            stop = min(self.end, (at // step + 1) * step)
            piece = memory[: stop - at]
            data_end = min(stop, self.canonical.size)
            self.canonical.read_into(at, piece[: data_end - at])
            piece[data_end - at :] = bytes(stop - data_end)
            yield at, piece
            at = stop


def stage_tensors(name: str, source: TensorsInput, folder: Path, progress: Progress) -> StagedTensors:
    """Read every byte once: what each shard will be, and the hash of every leaf."""
    art = _opened(name, source)
    canonical = CanonicalBytes(art.replica)
    recipes = [TensorShardSpec(canonical, start, end) for start, end in cut_shards(art.index)]
    tally = ProgressCounter(progress, "hash", sum(recipe.end - recipe.start for recipe in recipes), len(recipes))

    def measure(recipe: TensorShardSpec) -> tuple[Fingerprint, dict[int, bytes]]:
        done = _measure(recipe, tally)
        tally.finish_file()
        return done

    measured = in_parallel(measure, recipes)
    leaves = _all_leaves(canonical, {leaf: digest for _, found in measured for leaf, digest in found.items()})
    tail = folder / f"{name}.tensors"
    tail.write_bytes(encode_tail(canonical.size, art.index_bytes, leaves))
    shards = (
        StagedBlob(Path(name, f"{number:06d}.bytes"), fingerprint, recipe)
        for number, ((fingerprint, _), recipe) in enumerate(zip(measured, recipes, strict=True))
    )
    return StagedTensors(
        shards=tuple(shards),
        index=StagedBlob(tail, fingerprint_file(tail)),
        artifact_id=artifact_id(art.index_bytes, tree_root(leaves)),
        tensor_count=len(art),
    )


def _opened(name: str, source: TensorsInput) -> Tensors:
    if isinstance(source, Tensors):
        art = source
    elif isinstance(source, Mapping):
        art = open_arrays(source)
    elif isinstance(source, str | os.PathLike):
        art = open_tensors(Path(source).expanduser())
    else:
        raise BadInputError(
            f"tensors {name!r} can not be made of a {type(source).__name__}",
            hint="Pass a mapping of arrays, a .safetensors file, or a folder of them.",
        )
    if not len(art):
        raise InvalidSourceError(f"tensors {name!r} are none: the source is empty")
    return art


def _measure(recipe: TensorShardSpec, tally: ProgressCounter) -> tuple[Fingerprint, dict[int, bytes]]:
    """The shard, and the leaves that lie in it as a whole."""
    strong, quick = hashlib.sha256(), xxhash.xxh3_128()
    total = recipe.canonical.size
    size = leaf_size(total)
    leaves: dict[int, bytes] = {}
    for start, data in recipe.pieces(VIEW_PIECE_BYTES):
        strong.update(data)
        quick.update(data)
        for leaf in range(-(-start // size), -(-total // size)):
            first, last = leaf * size - start, min(total, (leaf + 1) * size) - start
            if last > len(data):
                break
            leaves[leaf] = hashlib.sha256(data[first:last]).digest()
        tally.add_bytes(len(data))
    return Fingerprint(Blob(strong.hexdigest(), recipe.end - recipe.start), quick.hexdigest()), leaves


def _all_leaves(canonical: CanonicalBytes, known: dict[int, bytes]) -> tuple[bytes, ...]:
    """Leaves that lie in several shards are read once more."""
    size = leaf_size(canonical.size)

    def hash_one(leaf: int) -> bytes:
        if leaf in known:
            return known[leaf]
        data = memoryview(bytearray(min(size, canonical.size - leaf * size)))
        canonical.read_into(leaf * size, data)
        return hashlib.sha256(data).digest()

    return tuple(in_parallel(hash_one, range(-(-canonical.size // size))))
