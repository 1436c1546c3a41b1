"""If this fails, a checkpoint on disk is misread, or its corruption is not detected."""

from __future__ import annotations

import gc
import json
import os
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from tests.formats.tensors.artifacts import Sample, rows_of, samples, specs
from tests.reference import tensor_views as reference
from warpdata.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CorruptError,
    ObjectNotFoundError,
    PartialCoverageError,
    StorageError,
    UnsupportedError,
)
from warpdata.formats.tensors.spec import whole
from warpdata.tensors import ReadCost, TensorSet, create_tensors, crop, narrow, open_tensors, transpose, write_tensors

ARRAYS: dict[str, Any] = {
    "big": np.arange(3000 * 700, dtype=np.float32).reshape(3000, 700),
    "empty": np.zeros((0, 4), np.int16),
    "half": np.arange(7, dtype=np.float16),
    "odd": np.arange(5, dtype=np.uint8),
    "scalar": np.array(2.5),
    "wide": np.array([2**64 - 1, 7], np.uint64),
    "yes": np.array([True, False, True]),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    names = sorted(ARRAYS)
    save_file({name: ARRAYS[name] for name in names[::2]}, tmp_path / "model-1.safetensors")
    save_file({name: ARRAYS[name] for name in names[1::2]}, tmp_path / "model-2.safetensors", {"format": "np"})
    listed = {name: f"model-{1 + number % 2}.safetensors" for number, name in enumerate(names)}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    return tmp_path


def test_a_directory_reads_like_the_safetensors_library(directory: Path) -> None:
    with open_tensors(directory) as art:
        assert art.names() == sorted(ARRAYS)
        for path in directory.glob("*.safetensors"):
            for name, array in load_file(path).items():
                np.testing.assert_array_equal(art[name].numpy(), array)
                np.testing.assert_array_equal(
                    art[name][1:2].numpy() if array.ndim else array, array[1:2] if array.ndim else array
                )
        out = art.view({"big": narrow(1, 100, 50)}).materialize()
        np.testing.assert_array_equal(out["big"], ARRAYS["big"][:, 100:150])


def test_types_that_numpy_lacks(tmp_path: Path) -> None:
    raw = np.arange(24, dtype=np.uint8)
    kinds = {"BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2}
    for code, kind in kinds.items():
        item = np.dtype(kind).itemsize
        path = tmp_path / f"{code}.safetensors"
        write_raw(path, {"t": {"dtype": code, "shape": [24 // item // 3, 3], "data_offsets": [0, 24]}}, raw.tobytes())
        out = open_tensors(path)["t"].numpy()
        assert out.dtype == np.dtype(kind)
        assert out.tobytes() == raw.tobytes()
        again = write_tensors(tmp_path / code, {"t": out})
        assert again["t"].numpy().tobytes() == raw.tobytes()


def write_raw(path: Path, header: Any, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_equal_tensors_have_one_id_in_every_file_format(directory: Path, tmp_path: Path) -> None:
    canonical = write_tensors(tmp_path / "whole.tensors", ARRAYS)
    (tmp_path / "one").mkdir()
    save_file(ARRAYS, tmp_path / "one" / "all.safetensors")
    ids = {canonical.artifact_id, open_tensors(directory).artifact_id, open_tensors(tmp_path / "one").artifact_id}
    data = (tmp_path / "whole.tensors").read_bytes()[: canonical.index.total_size]
    assert ids == {reference.artifact_id(reference.index_bytes(rows_of(canonical.index)), data)}
    assert canonical.artifact_id.endswith(canonical.data_multihash)


@pytest.mark.parametrize("verify", [False, True])
def test_a_canonical_file_round_trips(tmp_path: Path, verify: bool) -> None:
    art = write_tensors(tmp_path / "t", ARRAYS)
    out = art.view({"big": crop(slice(10, 2000, 3), slice(5, 600), order=(1, 0))}).materialize(verify=verify)
    np.testing.assert_array_equal(out["big"], ARRAYS["big"][10:2000:3, 5:600].T)
    for name in set(ARRAYS) - {"big"}:
        np.testing.assert_array_equal(out[name], ARRAYS[name])
    np.testing.assert_array_equal(art["big"][7].numpy(verify=verify), ARRAYS["big"][7])


def test_verified_reads_take_whole_leaves(tmp_path: Path) -> None:
    art = write_tensors(tmp_path / "t", ARRAYS)
    view = art.view({"big": narrow(0, 0, 10)}, names=["big"], cost=ReadCost(scratch_bytes=2**20))
    assert view.explain().bytes_read == 28_000
    assert view.explain(verify=True).reads == ((0, 0, 2**19),)
    whole_view = art.view(names=["big"], cost=ReadCost(scratch_bytes=2**20))
    explained = whole_view.explain(verify=True)
    assert all(end - start <= 2**20 for _, start, end in explained.reads)
    assert explained.bytes_read <= art.index.total_size


@pytest.mark.parametrize("position", [0, 600_000, 8_399_999, 8_400_001])
def test_a_flipped_bit_is_reported_by_tensor_and_range(tmp_path: Path, position: int) -> None:
    path = tmp_path / "t"
    write_tensors(path, ARRAYS).close()
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 4]))
    art = open_tensors(path)
    art.view().materialize()
    with pytest.raises(CorruptError) as caught:
        art.view().materialize(verify=True)
    leaf = position // 2**19 * 2**19
    assert f"bytes {leaf}…" in caught.value.message
    assert any("'big'" in problem or "'half'" in problem for problem in caught.value.problems)


def test_a_modified_tail_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "t"
    art = write_tensors(path, {"a": np.arange(5)})
    size = art.index.total_size
    good = path.read_bytes()
    for at in range(size, len(good) - 8):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises((CorruptError, UnsupportedError)):
            open_tensors(path)
    for data in (good[1:], good[:size] + bytes(8) + good[size:]):
        path.write_bytes(data)
        with pytest.raises(CorruptError):
            open_tensors(path)


GOOD = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (GOOD, bytes(7)),
        (GOOD, bytes(9)),
        (b"[]", b""),
        (b"{", b""),
        (b"\xff", b""),
        (b'{"a":1,"a":2}', b""),
        (b"[" * 100_000, b""),
        ({"a": 3}, b""),
        ({"a": {**GOOD["a"], "more": 1}}, bytes(8)),
        ({"a": {**GOOD["a"], "dtype": "F4"}}, bytes(8)),
        ({"a": {**GOOD["a"], "dtype": 4}}, bytes(8)),
        ({"a": {**GOOD["a"], "shape": [3]}}, bytes(8)),
        ({"a": {**GOOD["a"], "shape": [-2]}}, bytes(8)),
        ({"a": {**GOOD["a"], "shape": [True, 2]}}, bytes(8)),
        ({"a": {**GOOD["a"], "shape": [2.0]}}, bytes(8)),
        ({"a": {**GOOD["a"], "shape": [2**60, 2**60]}}, bytes(8)),
        ({"a": {**GOOD["a"], "shape": [1] * 40 + [2]}}, bytes(8)),
        ({"a": {**GOOD["a"], "data_offsets": [8, 0]}}, bytes(8)),
        ({"a": {**GOOD["a"], "data_offsets": [0]}}, bytes(8)),
        ({"a": {**GOOD["a"], "data_offsets": [1, 9]}}, bytes(9)),
        ({"a": GOOD["a"], "b": {**GOOD["a"], "data_offsets": [4, 12]}}, bytes(12)),
        ({"a": GOOD["a"], "b": GOOD["a"]}, bytes(8)),
        ({"__metadata__": {"x": 1}, **GOOD}, bytes(8)),
        ({"__metadata__": [], **GOOD}, bytes(8)),
    ],
)
def test_malformed_safetensors_are_rejected(tmp_path: Path, header: Any, data: bytes) -> None:
    write_raw(tmp_path / "x.safetensors", header, data)
    with pytest.raises(CorruptError):
        open_tensors(tmp_path / "x.safetensors")


@pytest.mark.parametrize("data", [b"", b"1234567", struct.pack("<Q", 2**63), struct.pack("<Q", 9) + b"{}"])
def test_truncated_files_are_rejected(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(CorruptError):
        open_tensors(tmp_path / "x.safetensors")


def test_paths_without_tensors(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        open_tensors(tmp_path)
    with pytest.raises(ObjectNotFoundError):
        open_tensors(tmp_path / "absent")
    save_file({"a": np.zeros(2)}, tmp_path / "1.safetensors")
    save_file({"a": np.zeros(2)}, tmp_path / "2.safetensors")
    with pytest.raises(CorruptError, match=r"1\.safetensors"):
        open_tensors(tmp_path)
    if os.geteuid() != 0:
        (tmp_path / "1.safetensors").chmod(0)
        with pytest.raises(AccessDeniedError):
            open_tensors(tmp_path / "1.safetensors")


def test_a_file_that_shrinks_after_opening_is_an_error(tmp_path: Path) -> None:
    save_file({"a": np.zeros(1000)}, tmp_path / "1.safetensors")
    art = open_tensors(tmp_path / "1.safetensors")
    os.truncate(tmp_path / "1.safetensors", 500)
    with pytest.raises(StorageError, match="ends at"):
        art["a"].numpy()


def test_files_are_closed(tmp_path: Path) -> None:
    def held() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    if not Path("/proc/self/fd").exists():
        pytest.skip("this system does not list open files")
    save_file({"a": np.zeros(10)}, tmp_path / "1.safetensors")
    (tmp_path / "2.safetensors").write_bytes(b"corrupt")
    gc.collect()
    before = held()
    open_tensors(tmp_path / "1.safetensors").close()
    for _ in range(3):
        with pytest.raises(CorruptError):
            open_tensors(tmp_path)
    assert held() == before


def elements_only(sample: Sample) -> bytes:
    """Return the canonical bytes with zeros outside of all elements."""
    kept = bytearray(len(sample.data))
    for entry in sample.index:
        item = entry.dtype.item_bytes
        for position in np.ndindex(entry.shape):
            at = entry.offset + item * (
                entry.storage_offset + sum(i * s for i, s in zip(position, entry.stride, strict=True))
            )
            kept[at : at + item] = sample.data[at : at + item]
    return bytes(kept)


@given(st.data(), samples())
def test_any_partition_into_views_writes_the_same_artifact(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample
) -> None:
    art, _ = Sample(sample.index, elements_only(sample)).opened()
    pieces: list[tuple[Any, tuple[str, ...]]] = []
    for entry in sample.index:
        dims = [dim for dim, count in enumerate(entry.shape) if count > 1]
        if not dims or data.draw(st.booleans()):
            moved = bool(entry.shape) and data.draw(st.booleans())
            pieces.append(({entry.name: transpose(0, -1)} if moved else None, (entry.name,)))
            continue
        dim = data.draw(st.sampled_from(dims))
        cut = data.draw(st.integers(1, entry.shape[dim] - 1))
        extent = entry.shape[dim]
        if data.draw(st.booleans()):
            pieces += [({entry.name: narrow(dim, *part)}, (entry.name,)) for part in ((0, cut), (cut, extent - cut))]
        else:
            lead = [slice(None)] * dim
            pieces += [({entry.name: crop(*lead, slice(first, None, 2))}, (entry.name,)) for first in (0, 1)]
    path = tmp_path_factory.mktemp("writer") / "t"
    with create_tensors(path, sample.index) as writer:
        for spec, names in data.draw(st.permutations(pieces)):
            out = art.view(spec, names=names).materialize()
            mapped = data.draw(st.booleans()) or (spec is None and not sample.index[names[0]].is_compact)
            writer.write_view(writer.view(spec, names=names), out if mapped else out.region)
        done = writer.seal()
    want = elements_only(sample)
    assert path.read_bytes()[: len(want)] == want
    assert done.artifact_id == art.artifact_id == reference.artifact_id(art.index_bytes, want)
    assert [file.name for file in path.parent.iterdir()] == ["t"]


@given(st.data(), samples())
def test_the_inverse_of_a_view_restores_every_byte(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample
) -> None:
    """The identity view writes whole storages, so the artifact has all of its bytes."""
    art, _ = sample.opened()
    spec = data.draw(specs(sample.index))
    with create_tensors(tmp_path_factory.mktemp("writer") / "t", sample.index) as writer:
        writer.write_view(writer.view(), art.view().materialize().region)
        writer.write_view(writer.view(spec or None), art.view(spec or None).materialize().region)
        assert writer.seal().artifact_id == art.artifact_id == reference.artifact_id(art.index_bytes, sample.data)


@given(st.data(), samples(), st.sampled_from([0, 3, 64, 10**6]))
def test_a_file_and_memory_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample, request_bytes: int
) -> None:
    """The direct path of files equals the path of plain sources, verified or not."""
    memory, _ = sample.opened()
    spec = data.draw(specs(sample.index)) or None
    with create_tensors(tmp_path_factory.mktemp("writer") / "t", sample.index) as writer:
        writer.write_view(writer.view(), sample.data)
        art = writer.seal()
    some = data.draw(st.none() | st.permutations(sample.index.names()))
    want = memory.view(spec, names=some).materialize()
    view = art.view(spec, names=some, cost=ReadCost(request_bytes))
    for verify in (False, True):
        assert bytes(view.materialize(verify=verify, expect=want.view_data_hash).region) == bytes(want.region)


def test_only_a_complete_file_can_be_sealed(tmp_path: Path) -> None:
    index = write_tensors(tmp_path / "a", {"t": np.arange(12.0).reshape(3, 4)}).index
    with create_tensors(tmp_path / "b", index) as writer:
        writer.write_view(writer.view({"t": narrow(0, 0, 2)}), {"t": np.arange(8.0).reshape(2, 4)})
        with pytest.raises(PartialCoverageError) as caught:
            writer.seal()
        assert caught.value.detail.missing_ranges == ((64, 32),)
        writer.write_view(writer.view({"t": narrow(0, 2, 1)}), {"t": np.arange(8.0, 12).reshape(1, 4)})
        done = writer.seal()
        with pytest.raises(UnsupportedError, match="closed"):
            writer.write_view(writer.view(), bytes(96))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert whole(index["t"]).cut_shape == done["t"].shape


def test_a_writer_without_seal_removes_its_file(tmp_path: Path) -> None:
    index = write_tensors(tmp_path / "a", {"t": np.arange(12)}).index
    with create_tensors(tmp_path / "b", index) as writer:
        writer.write_view(writer.view(), bytes(96))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_writer_rejects_invalid_data(tmp_path: Path) -> None:
    art: TensorSet = write_tensors(tmp_path / "a", {"t": np.arange(12)})
    other = write_tensors(tmp_path / "o", {"u": np.arange(12)})
    for taken in ("a", "missing/b"):
        with pytest.raises((AlreadyExistsError, ValueError)):
            create_tensors(tmp_path / taken, art.index)
    with create_tensors(tmp_path / "b", art.index) as writer:
        with pytest.raises(AlreadyExistsError):
            create_tensors(tmp_path / "b", art.index)
        with pytest.raises(UnsupportedError):
            writer.write_view(other.view(), bytes(96))
        bad: list[Any] = [bytes(95), {}, {"u": np.arange(12)}, {"t": np.arange(11)}, {"t": np.arange(12.0)}]
        for data in bad:
            with pytest.raises(ValueError, match="view"):
                writer.write_view(writer.view(), data)
        writer.write_view(writer.view(), {"t": np.arange(12)})
        (tmp_path / "b").write_bytes(b"another file")
        with pytest.raises(AlreadyExistsError):
            writer.seal()
    assert (tmp_path / "b").read_bytes() == b"another file"
