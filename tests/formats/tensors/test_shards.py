"""If this fails, a sharded checkpoint has other bytes than an unsharded one, or a small change uploads everything."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.tensors.artifacts import RecordingSource, Sample, rows_of, samples, specs
from tests.reference import tensor_shards as reference
from warpdata.formats.tensors.hashing import leaf_hashes
from warpdata.formats.tensors.index import align
from warpdata.tensors import (
    FileRangeSource,
    FileShards,
    ReadCost,
    StoreShards,
    TensorSet,
    cut_shards,
    encode_tail,
    open_arrays,
    open_shards,
    pack_index,
)

SMALL = patch.multiple("warpdata.formats.tensors.shards", SHARD_BYTES=64, _ALONE_BYTES=24)
costs = st.builds(ReadCost, st.sampled_from([0, 7, 64, 10**6]), st.sampled_from([5, 64, 10**6]))


def stored(sample: Sample) -> bytes:
    return sample.data + bytes(align(len(sample.data)) - len(sample.data))


def tail_of(sample: Sample) -> bytes:
    art, _ = sample.opened()
    return encode_tail(len(sample.data), art.index_bytes, tuple(leaf_hashes(sample.data)))


def cut_by(data: st.DataObject, size: int) -> list[tuple[int, int]]:
    """Draw any cuts: readers must not rely on those of `cut_shards`."""
    inner = data.draw(st.lists(st.integers(0, size), max_size=6))
    borders = [0, *sorted(inner), size]
    return list(pairwise(borders))


def open_cut(sample: Sample, cuts: list[tuple[int, int]], requested: list[Any]) -> TensorSet:
    whole = stored(sample)

    def open_part(number: int) -> Any:
        start, end = cuts[number]
        part = RecordingSource(whole[start:end])
        requested.append((start, part.requested))
        return part

    shards = StoreShards([end - start for start, end in cuts], open_part)
    return open_shards(tail_of(sample), shards, cuts)


@given(samples())
def test_shards_tile_the_bytes_and_separate_large_tensors(sample: Sample) -> None:
    with SMALL:
        cuts = cut_shards(sample.index)
    assert [end for _, end in cuts[:-1]] == [start for start, _ in cuts[1:]]
    assert sum(end - start for start, end in cuts) == align(sample.index.total_size)
    assert all(start < end and start % 8 == 0 for start, end in cuts)
    assert all(end - start <= 64 + 24 for start, end in cuts)
    begins = {start for start, _ in cuts}
    first = min((entry.offset for entry in sample.index if entry.size), default=0)
    assert all(entry.offset in {*begins, first} for entry in sample.index if entry.size >= 24)


@given(
    samples()
    | st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 90), max_size=40).map(
        lambda sizes: Sample(pack_index({name: ("torch.int8", (size,)) for name, size in sizes.items()}), b"")
    )
)
def test_cuts_are_those_of_the_specification(sample: Sample) -> None:
    index = sample.index
    with SMALL:
        ours = [end - start for start, end in cut_shards(index)]
    assert ours == reference.cut(rows_of(index), index.total_size, large=24, most=64)


@given(st.data(), samples(min_tensors=1), costs, st.booleans())
def test_shards_are_read_as_one_and_explain_predicts_every_request(
    data: st.DataObject, sample: Sample, cost: ReadCost, verify: bool
) -> None:
    spec = data.draw(specs(sample.index))
    requested: list[Any] = []
    art = open_cut(sample, cut_by(data, len(stored(sample))), requested)
    plain, _ = sample.opened()
    view = art.view(spec or None, cost=cost)
    explained = view.explain(verify=verify)
    assert not requested
    out = view.materialize(verify=verify)
    assert bytes(out.region) == bytes(plain.view(spec or None).materialize().region)
    made = sorted((start + first, start + last) for start, part in requested for first, last in part)
    assert made == sorted((first, last) for _, first, last in explained.reads)
    assert explained.requests == len(made)
    assert explained.bytes_read == sum(last - first for first, last in made)


@given(st.data(), samples(min_tensors=1))
def test_file_shards_gather_and_read_as_one(tmp_path_factory: Any, data: st.DataObject, sample: Sample) -> None:
    spec = data.draw(specs(sample.index))
    home: Path = tmp_path_factory.mktemp("parts")
    cuts = cut_by(data, len(stored(sample)))
    for number, (start, end) in enumerate(cuts):
        (home / str(number)).write_bytes(stored(sample)[start:end])
    sizes = [end - start for start, end in cuts]
    with patch("warpdata.formats.tensors.shards._MAX_OPEN_SHARDS", 1):
        shards = FileShards(sizes, lambda number: FileRangeSource(home / str(number)))
    plain, _ = sample.opened()
    with open_shards(tail_of(sample), shards, cuts) as art:
        for verify in (False, True):
            out = art.view(spec or None).materialize(verify=verify)
            assert bytes(out.region) == bytes(plain.view(spec or None).materialize().region)


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=5), st.integers(1, 80), min_size=1, max_size=60),
    st.text("abcdef", min_size=1, max_size=5),
    st.integers(0, 80),
)
def test_a_change_to_one_tensor_changes_few_shards(sizes: dict[str, int], name: str, size: int) -> None:
    """Changed, added or removed (size 0): later tensors move, but stay the same blobs."""
    changed = {key: value for key, value in {**sizes, name: size}.items() if value}
    before, after = _blobs(sizes), _blobs(changed, seed=name)
    assert len(after - before) <= 4 + -(-size // 64)


def test_an_inserted_tensor_does_not_shift_all_cuts() -> None:
    sizes = {f"{number:03d}": 20 for number in range(400)}
    before, after = _blobs(sizes), _blobs({**sizes, "0": 20})
    assert len(before) > 40
    assert len(after - before) <= 4


def _blobs(sizes: dict[str, int], seed: str = "") -> set[bytes]:
    def content(name: str, size: int) -> Any:
        first = hashlib.sha256((name + (seed if name == seed else "")).encode()).digest()
        return np.frombuffer((first * 3)[:size], np.uint8)

    art = open_arrays({name: content(name, size) for name, size in sizes.items()})
    canonical = bytes(art.view().materialize().region)
    canonical += bytes(align(len(canonical)) - len(canonical))
    with SMALL:
        return {canonical[start:end] for start, end in cut_shards(art.index)}


def test_the_cuts_of_an_index_never_change() -> None:
    """Other cuts would change the blobs of unchanged tensors."""
    mib = 2**20
    index = pack_index(
        {"big": ("torch.uint8", (150 * mib,)), "c": ("torch.int8", (3,)), "d": ("torch.int8", (3 * mib,))}
    )
    assert [end - start for start, end in cut_shards(index)] == [64 * mib, 64 * mib, 22 * mib, 3 * mib + 8]
    many = pack_index({f"layer.{number:02}.bias": ("torch.uint8", (mib,)) for number in range(48)})
    assert [(end - start) // mib for start, end in cut_shards(many)] == [8, 10, 7, 14, 4, 5]
