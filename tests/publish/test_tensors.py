"""If this fails, a published checkpoint has other bytes than its source, or costs too much to publish."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import warpdata as wd
from tests.faults.scenes import faulty, link, memory
from warpdata.datasets import Dataset, open_dataset
from warpdata.errors import BadInputError, CorruptError, InvalidSourceError, NotFoundError
from warpdata.repository.catalog import parse_address
from warpdata.repository.manifest import iter_shards
from warpdata.session import Session
from warpdata.storage import read_blob
from warpdata.tensors import TensorSet, open_arrays, open_tensors, write_tensors
from warpdata.testing import KillAt, Killed

MIB = 2**20
EYE: Any = torch.eye(3)


def checkpoint(seed: int = 0) -> dict[str, Any]:
    """Return layers with a shard each, small tensors between them, and types that NumPy lacks."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for layer in range(3):
        made[f"layer.{layer}.w"] = torch.from_numpy(rng.standard_normal((1100, 1024)).astype(np.float32))
        made[f"layer.{layer}.norm"] = torch.from_numpy(rng.standard_normal(33).astype(np.float16))
    made["head"] = torch.from_numpy(rng.standard_normal((70, 50)).astype(np.float32)).to(torch.bfloat16)
    made["scale"] = torch.from_numpy(rng.standard_normal(7).astype(np.float32)).to(torch.float8_e4m3fn)
    return made


def opened(connection: Session, ref: str = "main") -> Dataset:
    return open_dataset(connection, parse_address(f"a/b@{ref}"))


def publish(connection: Session, source: Any) -> Any:
    return wd.DatasetBuilder("a/b", connection).add_tensors("weights", source).publish()


def assert_holds(art: TensorSet, given: dict[str, Any]) -> None:
    assert art.names() == sorted(given)
    for name, value in given.items():
        want = value.detach().cpu().contiguous().view(torch.uint8).numpy() if isinstance(value, torch.Tensor) else value
        got = art[name].numpy(verify=True)
        assert got.shape == tuple(value.shape)
        assert got.tobytes() == want.tobytes(), name


def test_every_kind_of_source_is_the_same_version(tmp_path: Path) -> None:
    state = checkpoint()
    save_file(state, tmp_path / "whole.safetensors")
    directory = tmp_path / "parts"
    directory.mkdir()
    names = sorted(state)
    for number, part in enumerate((names[:3], names[3:])):
        save_file({name: state[name] for name in part}, directory / f"model-{number}.safetensors")
    canonical = write_tensors(tmp_path / "canonical", state)
    seen = set()
    files = (tmp_path / "whole.safetensors", str(directory), tmp_path / "canonical")
    for number, source in enumerate((state, *files, canonical)):
        connection = link(memory(f"kinds-{number}"))
        seen.add(publish(connection, source).version)
        assert_holds(opened(connection).tensors(), state)
        assert opened(connection).tensors().artifact_id == canonical.artifact_id
    assert len(seen) == 1


def test_a_weight_map_selects_the_files(tmp_path: Path) -> None:
    state = checkpoint()
    save_file(state, tmp_path / "consolidated.safetensors")
    save_file({"head": state["head"]}, tmp_path / "model-1.safetensors")
    save_file({"scale": state["scale"]}, tmp_path / "model-2.safetensors")
    listed = tmp_path / "model.safetensors.index.json"
    listed.write_text('{"weight_map":{"head":"model-1.safetensors","scale":"model-2.safetensors"},"metadata":{}}')
    for path in (tmp_path, listed):
        assert open_tensors(path).names() == ["head", "scale"]
    for bad, message in (
        ('{"weight_map":{"head":"model-1.safetensors","gone":"model-2.safetensors"}}', "'gone', 'scale'"),
        ('{"weight_map":{"head":"../model-1.safetensors"}}', "not a file beside it"),
        ('{"weight_map":{"head":"model-3.safetensors"}}', "does not exist"),
        ('{"weight_map":[]}', "no weight_map"),
        ("[]", "not a JSON object"),
    ):
        listed.write_text(bad)
        with pytest.raises((CorruptError, NotFoundError), match=message):
            open_tensors(tmp_path)


def test_blobs_in_order_are_a_canonical_file(tmp_path: Path) -> None:
    """The blobs of a version and a canonical file have the same bytes."""
    connection = link(memory("canonical"))
    # The last tensor ends in the middle of a request and of 8 bytes; the padding must be zeros.
    state = {**checkpoint(), "z": torch.full((20 * MIB + 3,), 7, dtype=torch.uint8)}
    publish(connection, state)
    dataset = opened(connection)
    payload = dataset.manifest.tensors["weights"]
    assert payload.index is not None
    blobs = [shard.blob for shard in iter_shards(payload.shards, connection.catalog.load_page)]
    joined = b"".join(read_blob(connection.reader, blob) for blob in [*blobs, payload.index])
    (tmp_path / "joined").write_bytes(joined)
    write_tensors(tmp_path / "canonical", state)
    assert joined == (tmp_path / "canonical").read_bytes()
    assert_holds(open_tensors(tmp_path / "joined"), state)


def test_only_changed_shards_are_uploaded() -> None:
    connection = link(memory("changed"))
    state = checkpoint()
    first = publish(connection, state)
    again = publish(link(connection.writer, seed=1), state)
    assert (again.changed, again.version, again.uploaded_files) == (False, first.version, 0)
    state["layer.1.w"] = state["layer.1.w"] + 1
    second = publish(link(connection.writer, seed=2), state)
    assert second.changed
    assert second.uploaded_files == 2, "the layer, and the index with its digests"
    assert second.uploaded_bytes < 1100 * 1024 * 4 + 64 * 1024
    state["a.new.one"] = torch.zeros(12345)
    third = publish(link(connection.writer, seed=3), state)
    assert third.uploaded_bytes < 200 * 1024, "later tensors move, but are not uploaded again"
    (change,) = opened(connection).diff(opened(connection, first.version)).changes
    assert (change.section, change.name, change.change) == ("tensors", "weights", "changed")
    assert_holds(opened(connection, first.version).tensors("weights"), checkpoint())


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_operation_then_run_again(when: Literal["before", "after"]) -> None:
    keep = np.arange(550_000)
    old, new = {"w": np.zeros(9), "keep": keep}, {"w": np.ones(9), "keep": keep}
    counting = faulty(memory(f"kill-count-{when}"))
    publish(link(counting), old)
    before = len(counting.log)
    publish(link(counting, seed=1), new)
    count = len(counting.log) - before
    assert count > 8
    for at in range(count):
        store = memory(f"kill-{when}-{at}")
        publish(link(store), old)
        with pytest.raises(Killed):
            publish(link(faulty(store, KillAt(at, when)), seed=1), new)
        held = opened(link(store)).tensors()["w"].numpy(verify=True)
        assert held.tolist() in ([0.0] * 9, [1.0] * 9)
        publish(link(store, seed=1), new)
        assert_holds(opened(link(store)).tensors(), new)
        assert len(opened(link(store)).history()) == 2


def test_a_large_source_needs_little_memory(tmp_path: Path) -> None:
    """The source is a sparse file of 300 MiB."""
    path = tmp_path / "large.safetensors"
    header = b'{"w":{"dtype":"U8","shape":[314572800],"data_offsets":[0,314572800]}}'
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 300 * MIB)
    tracemalloc.start()
    try:
        wd.DatasetBuilder("a/large").add_tensors("w", path).publish()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 80 * MIB
    art = wd.dataset("a/large").tensors()
    assert art.view({"w": wd.narrow(0, 200 * MIB, 10)}).explain(verify=False).bytes_read == 10
    assert wd.dataset("a/large").info().tensors[0].shards == 5


def test_a_source_that_changes_during_publish_is_rejected() -> None:
    weights = np.zeros(2 * MIB)
    builder = wd.DatasetBuilder("a/b", link(memory("moving"))).add_tensors("weights", {"w": weights})
    builder.plan()
    weights[5] = 1
    with pytest.raises(InvalidSourceError, match="tensors changed while"):
        builder.publish()


@given(st.data())
@settings(max_examples=25)
def test_arrays_with_any_strides_are_read_in_row_major_order(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=4)))
    array = np.arange(int(np.prod(shape)), dtype=data.draw(st.sampled_from(["u1", "i2", "f4", "c16"]))).reshape(shape)
    array = array.transpose(data.draw(st.permutations(range(len(shape)))))
    array = array[tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1]))) for _ in array.shape)]
    as_torch = data.draw(st.booleans()) and all(stride >= 0 for stride in array.strides)
    given_one: Any = torch.from_numpy(array) if as_torch else array
    art = open_arrays({"t": given_one})
    whole = np.ascontiguousarray(array).tobytes()
    assert art["t"].numpy().tobytes() == whole
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    if start < end:
        assert bytes(art.replica.sources[0].read_range(start, end)) == whole[start:end]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({}, "empty"),
        ({"w": [1, 2]}, "is a list, not an array"),
        ({1: np.zeros(2)}, "not a tensor name"),
        ({"w": np.array(["a"])}, "cannot be tensors"),
        ({"w": torch.zeros(3, device="meta")}, "no plain elements"),
        ({"w": EYE.to_sparse()}, "no plain elements"),
        (7, "cannot be made from a int"),
        ("no/such/file.safetensors", "does not exist"),
    ],
)
def test_invalid_sources_are_rejected(source: Any, message: str) -> None:
    with pytest.raises(wd.errors.WarpError, match=message):
        publish(link(memory("bad")), source)


def test_names_and_modes_are_checked_at_once() -> None:
    builder = wd.DatasetBuilder("a/b", link(memory("names"))).add_tensors("weights", checkpoint())
    calls: tuple[Callable[[], Any], ...] = (
        lambda: builder.add_tensors("weights", {}),
        lambda: builder.add_tensors("no/slash", {}),
        lambda: builder.publish(replace=True, keep=True),
    )
    for call in calls:
        with pytest.raises(BadInputError):
            call()


def test_a_plan_counts_tensors_and_bytes() -> None:
    builder = wd.DatasetBuilder("a/b", link(memory("plan"))).add_tensors("weights", checkpoint())
    plan = builder.plan()
    assert plan.tensors == {"weights": 8}
    assert plan.version == builder.publish().version
    assert builder.plan().upload_bytes == 0


def test_stored_ids_never_change() -> None:
    """Golden ids of the version, the artifact, the index and the shards."""
    arrays = {"a": np.arange(2**20, dtype=np.uint32), "b": np.arange(7, dtype=np.int8), "c": np.arange(3.0)}
    identity = (
        "mi2:bciqluaiypdxut4fbfroy56bg576f6ytrwslegprhi33yiv2eakab3ii"
        ":bciqp4tzakfiuwmxussqozrjbxo6ackckdn6g7th6ky377ddykidqcra"
    )
    connection = link(memory("golden"))
    assert publish(connection, arrays).version == "2eb2500dfb4901c72528680caa282caf9deeff64ce25fbf454b1f4401a7fa05a"
    payload = opened(connection).manifest.tensors["weights"]
    assert payload.index is not None
    assert payload.attributes == {"artifact_id": identity, "tensors": 3}
    assert payload.index.hash == "aa7dcdf30cecb3f712f8f82959c2f2eb865df165a2b1ae9105c5f4f65c748032"
    assert [shard.hash for shard in payload.shards.shards] == [
        "1f7a6345e9b0e88fbda1b3deadf54bb6f18ccbf548a244bf2de33179c243c0ff",
        "4c52e23284f4ce531d021cee8b9f30cec3843a0e88eaaaaa713533470bb512ec",
    ]


def test_a_corrupt_file_is_not_published(tmp_path: Path) -> None:
    """The file has hashes of its tensors, so wrong bytes must not become a version."""
    path = tmp_path / "t.tensors"
    write_tensors(path, {"a": np.arange(400_000)}).close()
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"\x99\x98\x97")
    connection = link(memory("corrupt tensors"))
    with pytest.raises(CorruptError, match="'a'"):
        publish(connection, path)
    with pytest.raises(NotFoundError):
        opened(connection)
