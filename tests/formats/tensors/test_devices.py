"""If this fails, a model on a GPU has other numbers than the stored ones, or a load leaks pinned memory.

The transfer is tested with a fake device that copies as late as possible, and with a real device if there is one
(`make test-gpu`).
"""

from __future__ import annotations

import _thread
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.tensors.artifacts import RecordingSource, Sample, chosen_of, rows_of, samples, specs
from tests.formats.tensors.slow_device import SlowDevice, target_over
from tests.reference import tensor_views as reference
from warpdata.errors import CorruptError, MissingExtraError, StorageError, UnsupportedError
from warpdata.formats.tensors import cuda
from warpdata.formats.tensors.cuda import PinnedPool, fill_device, slot_bytes_for
from warpdata.formats.tensors.cuda import verify as cuda_verify
from warpdata.formats.tensors.reads import ReadRequest
from warpdata.formats.tensors.strided_copy import StridedCopy
from warpdata.formats.tensors.transfer import TransferTask
from warpdata.storage import FileRangeSource
from warpdata.tensors import (
    Contiguous,
    Engine,
    Extent,
    Pad,
    ReadCost,
    SourcePolicy,
    TensorSet,
    View,
    create_tensors,
    crop,
    narrow,
    open_sources,
    open_tensors,
    pack_index,
    transpose,
    write_tensors,
)

costs = st.builds(
    ReadCost, st.sampled_from([0, 7, 10**6]), st.sampled_from([5, 64, 10**6]), st.sampled_from([3, 64, 10**6])
)


def load(
    art: TensorSet, view: View, device: SlowDevice, *, verify: bool = False, threads: int = 3, slots: int = 2
) -> bytes:
    """Load a view as an engine does, into noise. Bytes after the view must not change."""
    task = art.replica.transfer_task(view.plan, view._cost, verify=verify)
    memory = np.full(view.size + 9, 0xA5, np.uint8)
    pool = PinnedPool(device, max(1, slot_bytes_for(task.reads)), slots)
    try:
        fill_device(task, target_over((0, memory)), pool, device, threads=threads)
    finally:
        pool.close()
    assert bytes(memory[view.size :]) == b"\xa5" * 9
    return bytes(memory[: view.size])


@given(st.data(), samples(), costs, st.integers(1, 3))
def test_a_device_gets_the_same_bytes_as_memory(
    data: st.DataObject, sample: Sample, cost: ReadCost, slots: int
) -> None:
    spec = data.draw(specs(sample.index))
    art, _ = sample.opened()
    device = SlowDevice()
    got = load(art, art.view(spec or None, cost=cost), device, slots=slots)
    assert got == reference.view_bytes(rows_of(sample.index), sample.data, chosen_of(sample.index, spec))
    assert device.pinned == {}
    assert device.events == {}


@given(st.data(), samples(), costs, st.booleans(), st.booleans())
def test_files_reach_a_device_verified_or_not(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    sample: Sample,
    cost: ReadCost,
    verify: bool,
    in_place: bool,
) -> None:
    """Several threads, gathered and wide reads, and leaves hashed on the host or on the device."""
    art = stored(sample, tmp_path_factory.mktemp("device") / "t")
    spec = data.draw(specs(sample.index))
    names = data.draw(st.none() | st.permutations(sample.index.names()))
    view = art.view(spec or None, names=names, cost=cost)
    device = SlowDevice(hashes=data.draw(st.booleans()))
    with pytest.MonkeyPatch.context() as patch:
        verify_on_device(patch, in_place, data.draw(st.sampled_from([1, 2, 256])))
        got = load(art, view, device, verify=verify)
    assert got == bytes(view.materialize(verify=verify).region)
    art.close()


def verify_on_device(patch: pytest.MonkeyPatch, every: bool = True, batch: int = 256) -> None:
    """Hash every possible leaf on the device, or none."""
    patch.setattr(cuda_verify, "_MIN_DEVICE_LEAVES", 1 if every else 10**12)
    patch.setattr(cuda_verify, "_LEAVES_PER_THREAD", 0)
    patch.setattr(cuda_verify, "_BATCH_LEAVES", batch)


def stored(sample: Sample, path: Path) -> TensorSet:
    with create_tensors(path, sample.index) as writer:
        writer.write_view(writer.view(), sample.data)
        return writer.seal()


BIG: dict[str, Any] = {
    "a": np.arange(2000 * 300, dtype=np.float32).reshape(2000, 300),
    "b": np.arange(700 * 900, dtype=np.uint16).reshape(700, 900),
    "c": np.arange(5, dtype=np.int8),
}


@pytest.fixture
def art(tmp_path: Path) -> TensorSet:
    return write_tensors(tmp_path / "big", BIG)


def test_slots_are_reused_but_never_too_early(art: TensorSet) -> None:
    device = SlowDevice()
    cost = ReadCost(piece_bytes=10_000, scratch_bytes=10_000)
    view = art.view({"a": transpose(0, 1), "b": narrow(1, 3, 400)}, cost=cost)
    assert load(art, view, device, threads=4, slots=3) == bytes(view.materialize().region)
    assert device.copies >= 300
    assert device.most_pinned <= 3 * 10_016


@pytest.mark.parametrize("failure", [{"fail_after": 5}, {"fail_events": True}])
def test_a_failed_device_leaves_nothing_pinned(art: TensorSet, failure: dict[str, Any]) -> None:
    device = SlowDevice(**failure)
    cost = ReadCost(piece_bytes=10_000, scratch_bytes=10_000)
    with pytest.raises(StorageError, match="failed"):
        load(art, art.view(cost=cost), device, threads=4, slots=3)
    assert device.pinned == {}


def test_an_interrupt_stops_all_reads_and_frees_pinned_memory(art: TensorSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A keyboard interrupt arrives in the main thread while several threads read."""
    read_into = FileRangeSource.read_into
    started, active = itertools.count(), set[int]()

    def interrupting(self: FileRangeSource, start: int, targets: Any) -> None:
        active.add(start)
        if next(started) == 20:
            _thread.interrupt_main()
        read_into(self, start, targets)
        active.discard(start)

    monkeypatch.setattr(FileRangeSource, "read_into", interrupting)
    device = SlowDevice()
    cost = ReadCost(piece_bytes=1000, scratch_bytes=1000)
    with pytest.raises(KeyboardInterrupt):
        load(art, art.view(cost=cost), device, threads=4, slots=3)
    assert device.pinned == {}
    assert len(active) <= 1  # only the interrupted read of the main thread did not finish
    assert next(started) < 1000


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("hashes", [False, True])
def test_a_flipped_bit_is_found_by_a_transfer_to_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool, hashes: bool
) -> None:
    verify_on_device(monkeypatch, in_place)
    write_tensors(tmp_path / "t", BIG).close()
    with (tmp_path / "t").open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"\x99")
    art = open_tensors(tmp_path / "t")
    device = SlowDevice(hashes=hashes)
    with pytest.raises(CorruptError) as caught:
        load(art, art.view(), device, verify=True)
    assert caught.value.message.startswith("bytes 524288…1048576 do not match their hash; they hold 'a'")
    assert bool(device.hashed) == (in_place and hashes)
    assert device.pinned == {}


def test_leaves_that_arrive_in_one_piece_are_hashed_in_place(art: TensorSet, monkeypatch: pytest.MonkeyPatch) -> None:
    verify_on_device(monkeypatch)
    device = SlowDevice()
    load(art, art.view(), device, verify=True)
    assert device.hashed == 4 + 1
    transposed = SlowDevice()
    load(art, art.view({"a": transpose(0, 1), "b": transpose(0, 1)}), transposed, verify=True)
    assert transposed.hashed == 0


@pytest.mark.parametrize("corrupt", [0, 4, 5, 11])
def test_the_last_leaves_are_hashed_by_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corrupt: int) -> None:
    """A thread that hashes 7 leaves while the device hashes one gets the last 7 of 12. All are verified."""
    verify_on_device(monkeypatch, batch=2)
    monkeypatch.setattr(cuda_verify, "_LEAVES_PER_THREAD", 7)
    leaf = 512 * 1024
    arrays = {"a": np.arange(12 * leaf // 4, dtype=np.int32)}
    cost = ReadCost(piece_bytes=leaf, scratch_bytes=leaf)
    with write_tensors(tmp_path / "t", arrays) as art:
        device = SlowDevice()
        assert load(art, art.view(cost=cost), device, verify=True, threads=1) == arrays["a"].tobytes()
        assert device.hashed == 5
    with (tmp_path / "t").open("r+b") as file:
        file.seek(corrupt * leaf + 77)
        file.write(b"\x99\x99")
    with open_tensors(tmp_path / "t") as art, pytest.raises(CorruptError) as caught:
        load(art, art.view(cost=cost), SlowDevice(), verify=True, threads=1)
    assert caught.value.message.startswith(f"bytes {corrupt * leaf}…{(corrupt + 1) * leaf} do not match")


@pytest.mark.parametrize("hashes", [True, False])
@pytest.mark.parametrize("on_device", [True, False])
def test_leaves_that_fail_on_a_device_come_from_the_next_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_device: bool, hashes: bool
) -> None:
    verify_on_device(monkeypatch, every=on_device, batch=2)
    leaf = 512 * 1024
    arrays: dict[str, Any] = {"a": np.arange(6 * leaf // 4, dtype=np.int32), "b": np.arange(leaf // 4).reshape(64, -1)}
    with write_tensors(tmp_path / "t", arrays) as art:
        identity, truth = art.artifact_id, bytes(art.view({"b": transpose(0, 1)}).materialize().region)
    good = (tmp_path / "t").read_bytes()
    policy = SourcePolicy(replicas=[tmp_path / "bad", tmp_path / "worse", tmp_path / "t"])
    for name in ("bad", "worse"):
        (tmp_path / name).write_bytes(good)
    with open_tensors(identity, sources=policy) as art:
        for name, leaves in (("bad", (0, 3, 6)), ("worse", (3, 4, 7))):
            with (tmp_path / name).open("r+b") as file:
                for number in leaves:
                    file.seek(number * leaf + 99)
                    file.write(b"\x99\x98")
        device = SlowDevice(hashes=hashes)
        view = art.view({"b": transpose(0, 1)}, cost=ReadCost(piece_bytes=2 * leaf))
        assert load(art, view, device, verify=True) == truth
        assert (device.hashed > 0) == (on_device and hashes)
        assert [one.corrupt > 0 for one in art.source_stats()] == [True, True, False]
        wide = art.view({"b": narrow(1, 3, 40)}, names=["b"], cost=ReadCost(piece_bytes=leaf))
        expected = arrays["b"][:, 3:43].tobytes()
        assert load(art, wide, SlowDevice(), verify=True) == expected
        with (tmp_path / "t").open("r+b") as file:
            file.seek(3 * leaf)
            file.write(b"\x99\x98")
        with pytest.raises(CorruptError):
            load(art, view, SlowDevice(hashes=hashes), verify=True)


def test_a_request_does_not_write_between_its_parts() -> None:
    """The parts of two requests alternate in the target, one byte each."""
    data = b"aceg" + b"bdfh" + b"y"
    even = ReadRequest(0, 0, 4, tuple(StridedCopy(n, 2 * n, 1) for n in range(4)))
    odd = ReadRequest(0, 4, 8, tuple(StridedCopy(4 + n, 2 * n + 1, 1) for n in range(4)))
    last = ReadRequest(0, 8, 9, (StridedCopy(8, 16, 1),))
    runs = (Contiguous("t", 0, 0, 8), Pad(8, 8), Contiguous("u", 16, 8, 1))
    for reads in ((even, odd, last), (odd, last, even)):
        device, memory = SlowDevice(), np.full(17, 0x2D, np.uint8)
        task = TransferTask(runs, (), reads, (RecordingSource(data),))
        pool = PinnedPool(device, 64, 2)
        fill_device(task, target_over((0, memory)), pool, device)
        pool.close()
        assert bytes(memory) == b"abcdefgh" + bytes(8) + b"y"


def test_deferred_neighbours_have_separate_device_memory(tmp_path: Path) -> None:
    arrays = {name: np.arange(8, dtype=np.uint8) + at for at, name in enumerate("abc")}
    art = write_tensors(tmp_path / "t", arrays)
    deferred = art.deferred()
    for name in arrays:
        deferred.take(name)
    assert deferred.explain().requests == 1
    task = art.replica.transfer_task(deferred._plan.plan(), ReadCost())
    buffers = [(start, np.zeros(8, np.uint8)) for start, _ in deferred._plan.buffers]
    device = SlowDevice()
    pool = PinnedPool(device, slot_bytes_for(task.reads), 2)
    fill_device(task, target_over(*buffers), pool, device)
    pool.close()
    for (_, memory), array in zip(buffers, arrays.values(), strict=True):
        np.testing.assert_array_equal(memory, array)


def test_explain_names_the_place_of_the_work(art: TensorSet) -> None:
    explained = art.view({"b": transpose(0, 1)}).explain("cuda:0")
    assert explained.on_device
    assert "transposed after the read, on the device" in str(explained)
    assert "transposed after the read, in memory" in str(art.view({"b": transpose(0, 1)}).explain())
    memory = open_sources(
        art.index, [RecordingSource(bytes(art.index.total_size))], [Extent(0, art.index.total_size, 0, 0)]
    )
    wide = memory.view({"b": narrow(1, 0, 800)})
    assert "packed on the device" in str(wide.explain("cuda:0"))
    assert "packed in memory" in str(wide.explain())


def test_without_torch_a_device_is_a_missing_extra(tmp_path: Path) -> None:
    write_tensors(tmp_path / "t", {"a": np.arange(6)}).close()
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from warpdata import tensors\n"
        f"art = tensors.open_tensors({str(tmp_path / 't')!r})\n"
        "try: art.view().materialize('cuda:0')\n"
        "except ImportError as error: print(error.kind, error.hint)\n"
        "print(art['a'].numpy().sum())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["missing_extra pip install 'warpdata-lake[torch]'", "15"], done.stderr
    assert issubclass(MissingExtraError, ImportError)


def test_the_import_loads_neither_torch_nor_cuda_modules() -> None:
    code = (
        "import sys, threading, warpdata.tensors\n"
        "cuda = [name for name in sys.modules if name.startswith('warpdata.formats.tensors.cuda.')]\n"
        "print('torch' in sys.modules, cuda, threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False [] 1"


def test_the_cuda_package_is_used_through_its_face() -> None:
    source = Path(cuda.__file__).parents[1]
    for path in source.glob("*.py"):
        assert "formats.tensors.cuda." not in path.read_text(encoding="utf-8"), path
    assert {getattr(cuda, name) for name in cuda.__all__}


def test_invalid_engines_are_rejected() -> None:
    for bad in ({"threads": 0}, {"staging_bytes": 0}):
        with pytest.raises(ValueError):
            Engine(**bad)


def _torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def _cuda() -> Any:
    torch = _torch()
    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA device")
    return torch


def test_host_memory_of_torch_is_filled_in_place(art: TensorSet) -> None:
    torch = _torch()
    view = art.view({"a": crop(slice(None), slice(3, 90, 2), order=(1, 0))})
    region = torch.zeros(view.size + 3, dtype=torch.uint8)
    out = view.materialize_into(region)
    assert isinstance(out["a"], torch.Tensor)
    assert out["a"].data_ptr() == region.data_ptr() + view.index["a"].offset
    np.testing.assert_array_equal(out["a"].numpy(), BIG["a"][:, 3:90:2].T)
    shaped = torch.zeros((43 + 1, 2000), dtype=torch.float32)
    art.view({"a": narrow(0, 0, 200)}, names=["a"]).materialize_into(shaped)
    np.testing.assert_array_equal(shaped.reshape(-1)[: 200 * 300].numpy(), BIG["a"][:200].reshape(-1))
    with pytest.raises(UnsupportedError):
        view.materialize_into(torch.zeros(2000, 2000)[:, ::2])
    with pytest.raises(UnsupportedError):
        view.materialize_into(torch.zeros(10))


def test_host_memory_with_dlpack_is_filled(art: TensorSet) -> None:
    class OnlyDlpack:
        """Memory with DLPack only."""

        def __init__(self) -> None:
            self.array = np.zeros(art.index.total_size, np.uint8)

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    region = OnlyDlpack()
    art.view().materialize_into(region)
    assert bytes(region.array) == bytes(art.view().materialize().region)


def test_tensors_of_torch_can_be_written(tmp_path: Path) -> None:
    torch = _torch()
    pytest.importorskip("ml_dtypes", reason="arrays of bfloat16 need ml_dtypes")
    state = {
        "w": torch.arange(24, dtype=torch.bfloat16).reshape(4, 6).t(),
        "n": torch.tensor(3),
        "e": torch.zeros(0, 2),
    }
    with write_tensors(tmp_path / "t", state) as art:
        for name, tensor in state.items():
            region = torch.empty_like(tensor.contiguous())
            art.view(names=[name]).materialize_into(region)
            assert torch.equal(region, tensor)
            assert art[name].dtype == str(tensor.dtype)


def test_unavailable_devices_are_rejected(art: TensorSet) -> None:
    torch = _torch()
    for device in ("cuda:99", "meta", "nonsense", torch.device("meta")):
        with pytest.raises(UnsupportedError):
            art.view().materialize(device)


@given(st.data(), samples(), costs, st.booleans())
def test_a_real_device_holds_the_numpy_expression(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample, cost: ReadCost, verify: bool
) -> None:
    torch = _cuda()
    art = stored(sample, tmp_path_factory.mktemp("gpu") / "t")
    spec = data.draw(specs(sample.index))
    view = art.view(spec or None, cost=cost)
    want = view.materialize()
    out = view.materialize("cuda:0", verify=verify, expect=want.view_data_hash)
    assert bytes(out.region.cpu().numpy()) == bytes(want.region)
    for name in out:
        assert out[name].device.type == "cuda"
        assert tuple(out[name].shape) == want[name].shape
        # torch normalizes invalid bools, so they are compared as numbers.
        plain = out[name].view(torch.uint8) if out[name].dtype == torch.bool else out[name]
        # A copy, because a single element counts as contiguous with any stride.
        flat = plain.cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
        assert not plain.numel() or bytes(flat.view(torch.uint8).numpy()) == want[name].tobytes()
    art.close()


def test_a_real_device_verifies_every_leaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = _cuda()
    verify_on_device(monkeypatch)
    arrays: dict[str, Any] = {
        "w": np.random.default_rng(3).integers(0, 2**62, (3000, 1001)),
        "x": np.arange(11, dtype=np.int8),
    }
    with write_tensors(tmp_path / "t", arrays) as art:
        out = art.view().materialize("cuda:0", verify=True)
        np.testing.assert_array_equal(out["w"].cpu().numpy(), arrays["w"])
        view = art.view({"w": narrow(0, 1, 2999)}, names=["x", "w"])
        np.testing.assert_array_equal(view.materialize("cuda:0", verify=True)["w"].cpu().numpy(), arrays["w"][1:])
        assert art.replica.engine.pinned_bytes > 0
        engine = art.replica.engine
    assert engine.pinned_bytes == 0
    with (tmp_path / "t").open("r+b") as file:
        file.seek(5_000_000)
        file.write(b"\x99")
    with open_tensors(tmp_path / "t") as art:
        with pytest.raises(CorruptError, match="'w'"):
            art.view().materialize("cuda:0", verify=True)
        assert art.replica.engine.pinned_bytes == 0
        out = art.view().materialize("cuda:0")
        assert not torch.equal(out["w"].cpu(), torch.from_numpy(arrays["w"]))


def test_memory_of_a_real_device_is_filled_in_place(art: TensorSet) -> None:
    torch = _cuda()
    view = art.view({"a": transpose(0, 1), "b": narrow(1, 1, 850)})
    region = torch.full((view.size + 8,), 7, dtype=torch.uint8, device="cuda:0")
    out = view.materialize_into(region)
    np.testing.assert_array_equal(out["a"].cpu().numpy(), BIG["a"].T)
    np.testing.assert_array_equal(out["b"].cpu().numpy(), BIG["b"][:, 1:851])
    assert region[view.size :].tolist() == [7] * 8
    with pytest.raises(UnsupportedError):
        view.materialize_into(region[:100])


def test_wide_elements_are_transposed_at_any_alignment(tmp_path: Path) -> None:
    """Elements of 16 bytes at a multiple of 8, and memory at an odd address."""
    torch = _cuda()
    arrays: dict[str, Any] = {"a": np.arange(3, dtype=np.int8), "b": np.arange(6, dtype=np.complex128).reshape(2, 3)}
    with write_tensors(tmp_path / "t", arrays) as art:
        view = art.view({"b": transpose(0, 1)})
        assert view.index["b"].offset == 8
        np.testing.assert_array_equal(view.materialize("cuda:0")["b"].cpu().numpy(), arrays["b"].T)
        region = torch.zeros(view.size + 3, dtype=torch.uint8, device="cuda:0")
        view.materialize_into(region[3:])
        assert bytes(region[3:].cpu().numpy()) == bytes(view.materialize().region)


def test_other_sources_than_files_reach_a_real_device() -> None:
    _cuda()
    index = pack_index({"a": ("torch.float16", (64, 48)), "b": ("torch.bool", (3,))})
    source = RecordingSource(bytes(n * 31 % 251 for n in range(index.total_size)))
    art = open_sources(index, [source], [Extent(0, index.total_size, 0, 0)])
    view = art.view({"a": crop(slice(0, 64, 3), slice(5, 40, 2))})
    assert bytes(view.materialize("cuda:0").region.cpu().numpy()) == bytes(view.materialize().region)


def test_deferred_memory_on_a_real_device(art: TensorSet) -> None:
    torch = _cuda()
    with art.deferred("cuda:0") as deferred:
        rows = deferred.slice("a", dim=0, start=100, length=512)
        columns = deferred.slice("b", dim=1, start=7, length=100)
        transposed = deferred.take("b", transpose(0, 1))
        vector = deferred.take("c")
        assert rows.device == torch.device("cuda:0")
        assert deferred.explain().on_device
        deferred.commit(verify=True)
    np.testing.assert_array_equal(rows.cpu().numpy(), BIG["a"][100:612])
    np.testing.assert_array_equal(columns.cpu().numpy(), BIG["b"][:, 7:107])
    np.testing.assert_array_equal(transposed.cpu().numpy(), BIG["b"].T)
    np.testing.assert_array_equal(vector.cpu().numpy(), BIG["c"])


def test_device_memory_with_dlpack_is_filled(art: TensorSet) -> None:
    torch = _cuda()

    class OnlyDlpack:
        """Memory with DLPack only."""

        def __init__(self) -> None:
            self.tensor = torch.zeros(art.index.total_size, dtype=torch.uint8, device="cuda:0")

        def __dlpack__(self, **options: Any) -> Any:
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

    region = OnlyDlpack()
    art.view().materialize_into(region)
    assert bytes(region.tensor.cpu().numpy()) == bytes(art.view().materialize().region)


def test_an_interrupted_load_to_a_real_device_leaves_nothing_pinned(
    art: TensorSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    _cuda()
    read_into, calls = FileRangeSource.read_into, []

    def interrupted(self: FileRangeSource, start: int, targets: Any) -> None:
        calls.append(start)
        if len(calls) == 20:
            raise KeyboardInterrupt
        read_into(self, start, targets)

    view = art.view(cost=ReadCost(piece_bytes=10_000, scratch_bytes=10_000))
    want = bytes(view.materialize().region)
    monkeypatch.setattr(FileRangeSource, "read_into", interrupted)
    with pytest.raises(KeyboardInterrupt):
        view.materialize("cuda:0")
    assert art.replica.engine.pinned_bytes == 0
    monkeypatch.undo()
    assert bytes(view.materialize("cuda:0").region.cpu().numpy()) == want
