"""If this fails, equal tensors have different ids in different implementations."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.tensors.artifacts import Sample, chosen_of, rows_of, samples, specs
from tests.reference import tensor_views as reference
from warpdata import tensors
from warpdata.formats.tensors.hashing import leaf_size, tree_root
from warpdata.tensors import crop, encode_index, narrow, normalize, pack_index, parse_index, transpose

VECTORS = Path(__file__).parents[4] / "shared" / "vectors" / "tensor-views.json"


@pytest.fixture(scope="module")
def known() -> Any:
    if not VECTORS.exists():
        pytest.skip("the shared test vectors are not available")
    return json.loads(VECTORS.read_text(encoding="utf-8"))


def id_of(data: bytes, spec: dict[str, Any]) -> str | None:
    index = parse_index(data)
    return tensors.view_id(normalize(index, spec), index, tensors.multihash(hashlib.sha256(data).digest()))


def test_known_view_id(known: Any) -> None:
    case = known["view_id"]
    ops: dict[str, Any] = {}
    for name, listed in case["view_spec"].items():
        ops[name] = [transpose(*op["transpose"]) if "transpose" in op else narrow(**op["narrow"]) for op in listed]
    data = case["canonical_index"].encode()
    assert encode_index(parse_index(data)) == data
    assert id_of(data, ops) == case["view_id"]


def test_known_subset_hash(known: Any) -> None:
    case = known["view_subset_hash"]
    assert tensors.view_subset_hash(case["names"]).hex() == case["hex"]
    assert reference.subset_hash(case["names"]).hex() == case["hex"]


def test_known_selection_hashes(known: Any) -> None:
    for case in known["selection_hash"]:
        subset = None if case["subset"] is None else tensors.view_subset_hash(case["subset"])
        assert tensors.selection_hash(case["view_id"], subset).hex() == case["hex"]
        assert reference.selection_hash(case["view_id"], subset).hex() == case["hex"]


@given(samples())
def test_index_bytes_round_trip_and_equal_the_reference(sample: Sample) -> None:
    data = encode_index(sample.index)
    assert data == reference.index_bytes(rows_of(sample.index))
    assert parse_index(data) == sample.index


@given(st.data(), samples())
def test_view_ids_equal_the_reference(data: st.DataObject, sample: Sample) -> None:
    spec = data.draw(specs(sample.index))
    if not spec:
        return
    art, _ = sample.opened()
    view = art.view(spec)
    assert view.view_id == reference.view_id(rows_of(sample.index), chosen_of(sample.index, spec))
    assert view.selection_hash == reference.selection_hash(view.view_id or "", None)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5)))
def test_subset_hashes_equal_the_reference(names: list[str]) -> None:
    assert tensors.view_subset_hash(names) == reference.subset_hash(names)


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=40))
def test_the_tree_hashes_pairs_and_promotes_an_odd_digest(leaves: list[bytes]) -> None:
    def root(level: list[bytes]) -> bytes:
        """Hash top down: the left part is the largest power of two below the number of leaves."""
        if len(level) <= 1:
            return level[0] if level else bytes(32)
        half = 1
        while half * 2 < len(level):
            half *= 2
        return hashlib.sha256(root(level[:half]) + root(level[half:])).digest()

    assert tree_root(leaves) == root(leaves)


@pytest.mark.parametrize("size", [0, 1, 512 * 1024 - 1, 512 * 1024, 512 * 1024 + 1, 3 * 512 * 1024 + 5])
def test_tree_hash_at_leaf_boundaries(size: int) -> None:
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    assert tensors.tree_hash(data) == reference.tree_hash(data)


@pytest.mark.parametrize(
    ("total", "leaf"),
    [
        (0, 2**19),
        (2**19 * 4096, 2**19),
        (2**20 * 4095, 2**19),
        (2**20 * 4095 + 1, 2**20),
        (2**21 * 4095 + 1, 2**21),
        (2**22 * 4095, 2**21),
        (2**22 * 4095 + 1, 2**22),
        (2**50, 2**22),
    ],
)
def test_leaf_size(total: int, leaf: int) -> None:
    assert leaf_size(total) == leaf


INDEX = encode_index(pack_index({"t": ("torch.float32", (4, 5, 6)), "u": ("torch.int8", (3,))}))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"t": narrow(-1, -2, 2)}, {"t": narrow(2, 4, 2)}),
        ({"t": narrow(0, 1, 2), "u": narrow(0, 0, 3)}, {"t": narrow(0, 1, 2)}),
        ({"t": [narrow(1, 0, 5), narrow(0, 1, 2)]}, {"t": narrow(0, 1, 2)}),
        ({"t": transpose(0, 2)}, {"t": transpose(-1, 0)}),
        ({"t": [transpose(0, 1), transpose(1, 0), transpose(1, 2)]}, {"t": transpose(1, 2)}),
        ({"t": crop(slice(1, 3))}, {"t": narrow(0, 1, 2)}),
        ({"t": crop(order=(0, 2, 1))}, {"t": transpose(1, 2)}),
        ({"t": crop(slice(0, 1, 3))}, {"t": narrow(0, 0, 1)}),
        ({"t": crop(slice(0, 3, 2))}, {"t": crop(slice(0, 4, 2))}),
    ],
)
def test_equal_views_have_one_id(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert id_of(INDEX, one) == id_of(INDEX, other) is not None


@pytest.mark.parametrize(
    "spec",
    [
        {"t": narrow(0, 0, 4)},
        {"t": [transpose(0, 1), transpose(1, 0)]},
        {"t": crop()},
        {"u": []},
        {"t": transpose(1, 1)},
    ],
)
def test_the_identity_has_no_id(spec: dict[str, Any]) -> None:
    assert id_of(INDEX, spec) is None


def test_views_beyond_version_1_have_their_own_ids() -> None:
    specs: list[dict[str, Any]] = [
        {"t": crop(slice(0, 2), slice(0, 2))},
        {"t": crop(slice(0, 4, 2))},
        {"t": crop(slice(0, 2), order=(1, 0, 2))},
        {"t": narrow(0, 0, 2)},
        {"t": transpose(0, 1)},
        {"t": [transpose(0, 1), transpose(1, 2)]},
    ]
    assert len({id_of(INDEX, spec) for spec in specs}) == len(specs)


def test_layouts_of_canonical_and_view_differ() -> None:
    canonical = tensors.logical_layout_hash(INDEX, "canonical")
    assert canonical == hashlib.sha256(INDEX + b"|canonical").digest()
    assert tensors.logical_layout_hash(INDEX, "view") == hashlib.sha256(INDEX + b"|view").digest() != canonical
