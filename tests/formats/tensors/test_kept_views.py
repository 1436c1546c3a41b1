"""If this fails, kept bytes of one view are taken for another, or the canonical bytes are not used when they fail."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.tensors.artifacts import Sample, samples, specs
from warpdata.errors import (
    BadInputError,
    CorruptError,
    ObjectNotFoundError,
    PartialCoverageError,
    StoreUnavailableError,
    UnsupportedError,
)
from warpdata.tensors import (
    SourcePolicy,
    TensorSet,
    create_tensors,
    narrow,
    open_tensors,
    serve_tensors,
    transpose,
    write_tensors,
)

ARRAYS: dict[str, Any] = {
    "a": np.arange(600 * 700, dtype=np.float32).reshape(600, 700),
    "b": np.arange(77, dtype=np.int16),
    "c": np.arange(300 * 300, dtype=np.uint32).reshape(300, 300),
}
SPEC: dict[str, Any] = {"a": narrow(1, 100, 350), "c": transpose(0, 1)}


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[TensorSet]:
    with write_tensors(tmp_path / "whole", ARRAYS) as made:
        yield made


def index_only(art: TensorSet, path: Path) -> TensorSet:
    """Return a partial file without data: it names the artifact, and its bytes come from other sources."""
    return art.save_partial(art.view(names=[]), path)


def check(out: Any) -> None:
    np.testing.assert_array_equal(out["a"], ARRAYS["a"][:, 100:450])
    np.testing.assert_array_equal(out["b"], ARRAYS["b"])
    np.testing.assert_array_equal(out["c"], ARRAYS["c"].T)


def test_a_kept_view_is_a_source_of_its_own_bytes(whole: TensorSet, tmp_path: Path) -> None:
    view = whole.view(SPEC)
    kept = whole.save_view(view, tmp_path / "kept")
    assert kept.data_multihash == view.materialize().view_data_hash
    assert kept.index_bytes == view.index_bytes
    check({name: kept[name].numpy(verify=True) for name in kept})
    index_only(whole, tmp_path / "index").close()
    policy = SourcePolicy(replicas=[tmp_path / "kept"])
    with open_tensors(tmp_path / "index", sources=policy) as art:
        again = art.view(SPEC)
        assert (again.space_kind, again.space_id) == ("view", view.view_id)
        canonical, own = again.coverage()
        assert canonical.space_kind == "canonical"
        assert canonical.space_id == whole.index_multihash
        assert canonical.missing_ranges
        assert own.missing_ranges, "without a hash, kept bytes are not believed"
        with pytest.raises(PartialCoverageError) as missing:
            again.materialize()
        assert missing.value.detail.space_kind == "canonical"
        expect = kept.data_multihash
        assert again.coverage(expect=expect)[1].missing_ranges == ()
        explained = again.explain(expect=expect)
        assert (explained.space_kind, explained.space_id) == ("view", view.view_id)
        assert "kept bytes" in str(explained)
        check(again.materialize(expect=expect))
        check(again.materialize(device="cpu", expect=expect))
        memory = np.zeros(again.size, np.uint8)
        check(again.materialize_into(memory, expect=expect))
        assert [one.space_kind for one in art.source_stats() if one.bytes_read] == ["view"]
        with pytest.raises(PartialCoverageError):
            art.view({"a": narrow(1, 101, 350), "c": transpose(0, 1)}).materialize(expect=expect)
    trusting = SourcePolicy(replicas=[tmp_path / "kept"], view_hashes={str(view.space_id): kept.data_multihash})
    with open_tensors(tmp_path / "index", sources=trusting) as art:
        check(art.view(SPEC).materialize())
        with pytest.raises(PartialCoverageError):
            art.view().materialize()


def test_corrupt_kept_bytes_give_way_to_canonical_ones(whole: TensorSet, tmp_path: Path) -> None:
    view = whole.view(SPEC)
    kept = whole.save_view(view, tmp_path / "kept")
    expect = kept.data_multihash
    identity = whole.artifact_id
    with open_tensors(identity, sources=SourcePolicy(replicas=[tmp_path / "kept", tmp_path / "whole"])) as art:
        check(art.view(SPEC).materialize(expect=expect))
        with (tmp_path / "kept").open("r+b") as file:
            file.seek(5000)
            file.write(b"\x99\x98\x97")
        check(art.view(SPEC).materialize(expect=expect))
        by_space = {one.space_kind: one for one in art.source_stats() if one.is_open}
        assert by_space["view"].corrupt == 1
        assert by_space["canonical"].bytes_read > 0
        with (tmp_path / "whole").open("r+b") as file:
            file.seek(5000)
            file.write(b"\x99\x98\x97")
        with pytest.raises((StoreUnavailableError, CorruptError), match=r"view .*canonical"):
            art.view(SPEC).materialize(expect=expect)


def test_a_view_file_is_never_taken_for_its_artifact(tmp_path: Path) -> None:
    """The transpose of a square matrix has the same index as the matrix."""
    square = np.arange(256, dtype=np.int64).reshape(16, 16)
    with write_tensors(tmp_path / "t", {"a": square}) as art:
        view = art.view({"a": transpose(0, 1)})
        kept = art.save_view(view, tmp_path / "kept")
        assert kept.index_multihash == art.index_multihash
        identity = art.artifact_id
    policy = SourcePolicy(replicas=[tmp_path / "kept", tmp_path / "t"])
    with open_tensors(identity, sources=policy) as art:
        np.testing.assert_array_equal(art["a"].numpy(verify=False), square)
        assert [one.is_open for one in art.source_stats()] == [True, False]
    with pytest.raises(ObjectNotFoundError, match="view ByteSpace"):
        open_tensors(identity, sources=SourcePolicy(replicas=[tmp_path / "kept"]))


def test_a_modified_view_file_is_rejected(tmp_path: Path) -> None:
    with write_tensors(tmp_path / "t", {"a": np.arange(5)}) as art:
        kept = art.save_view(art.view({"a": narrow(0, 1, 3)}), tmp_path / "kept")
    size = kept.index.total_size
    good = (tmp_path / "kept").read_bytes()
    for at in range(size, len(good)):
        (tmp_path / "bad").write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises((CorruptError, UnsupportedError, BadInputError)):
            open_tensors(tmp_path / "bad")
    for data in (good[1:], good[:size] + bytes(8) + good[size:]):
        (tmp_path / "bad").write_bytes(data)
        with pytest.raises(CorruptError):
            open_tensors(tmp_path / "bad")


def test_a_peer_serves_kept_views(whole: TensorSet, tmp_path: Path) -> None:
    views = [whole.view({"c": narrow(0, start, 100)}, names=["c", "b"]) for start in (0, 100)]
    kept = [whole.save_view(view, tmp_path / f"kept{number}") for number, view in enumerate(views)]
    assert kept[0].index_multihash == kept[1].index_multihash, "equal layouts, other elements"
    index_only(whole, tmp_path / "index").close()
    with open_tensors(tmp_path / "index") as part, serve_tensors(part, views=kept) as server:
        listed = json.load(urllib.request.urlopen(f"{server.url}/tensors", timeout=20))  # noqa: S310 - own server
        assert [one["space_kind"] for one in listed] == ["canonical", "view", "view"]
        assert [one["space_id"] for one in listed[1:]] == [view.space_id for view in views]
        policy = SourcePolicy(peers=[server.url])
        with open_tensors(whole.artifact_id, sources=policy) as art:
            for view, one in zip(views, kept, strict=True):
                again = view_of(art, view)
                out = again.materialize(expect=one.data_multihash)
                np.testing.assert_array_equal(out["c"], view.materialize()["c"])
            # The bytes of the other view have the same layout, and another hash.
            with pytest.raises(PartialCoverageError):
                view_of(art, views[0]).materialize(expect=kept[1].data_multihash)
        with pytest.raises(BadInputError):
            serve_tensors(part, views=[part])


def view_of(art: TensorSet, view: Any) -> Any:
    return type(view)(art.replica, view.normal, view.names)


@given(st.data(), samples(min_tensors=1))
def test_any_view_can_be_kept(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample) -> None:
    home = tmp_path_factory.mktemp("kept")
    with create_tensors(home / "t", sample.index) as writer:
        writer.write_view(writer.view(), sample.data)
        art = writer.seal()
    spec = data.draw(specs(sample.index)) or None
    names = data.draw(st.none() | st.lists(st.sampled_from(sample.index.names()), unique=True))
    view = art.view(spec, names=names)
    truth = view.materialize()
    kept = art.save_view(view, home / "kept")
    assert kept.data_multihash == truth.view_data_hash
    index_only(art, home / "index").close()
    with open_tensors(home / "index", sources=SourcePolicy(replicas=[home / "kept"])) as far:
        out = view_of(far, view) if names is not None else far.view(spec)
        if out.space_kind == "view":
            assert bytes(out.materialize(expect=truth.view_data_hash).region) == bytes(truth.region)
    kept.close()
    art.close()
