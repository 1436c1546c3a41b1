"""If this fails, a notebook prints megabytes, an address in memory, or markup that a file chose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warpdata.formats.tensors.extents import ExtentMap
from warpdata.formats.tensors.leaves import LeafDigests
from warpdata.formats.tensors.peer import PeerSource
from warpdata.tensors import (
    Engine,
    Extent,
    SourcePolicy,
    create_tensors,
    cut_shards,
    narrow,
    open_arrays,
    open_tensors,
    serve_tensors,
    write_tensors,
)

COUNT = 400
HOSTILE = "<script>alert(1)</script>\x1b[31m" + "x" * 500


def tensors() -> dict[str, Any]:
    made: dict[str, Any] = {f"layers.{n}.w": np.full((2, 3), n, np.float32) for n in range(COUNT)}
    return {**made, HOSTILE: np.arange(3)}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One object of every class that a caller meets, over thousands of tensors."""
    path = tmp_path_factory.mktemp("display") / "t"
    art = write_tensors(path, tensors())
    view = art.view({"layers.1.w": narrow(1, 0, 2)})
    writer = create_tensors(path.with_name("new"), art.index)
    with serve_tensors(art) as server, writer:
        several = open_tensors(path, sources=SourcePolicy(peers=[server.url]))
        yield {
            "TensorSet": art,
            "several": several,
            "arrays": open_arrays(tensors()),
            "Tensor": art["layers.1.w"],
            "slice": art["layers.1.w"][1, ::2],
            "hostile": art[HOSTILE],
            "View": view,
            "subset": view.only(["layers.1.w"]),
            "Materialized": view.materialize(),
            "ViewExplanation": view.explain(),
            "NormalView": view.normal,
            "ViewPlan": view.plan,
            "TensorIndex": art.index,
            "TensorEntry": art.index["layers.1.w"],
            "TensorDType": art.index["layers.1.w"].dtype,
            "Deferred": art.deferred(),
            "Engine": Engine(),
            "TensorWriter": writer,
            "TensorServer": server,
            "Replica": several.replica,
            "ExtentMap": ExtentMap([Extent(n, n + 1, 0, 0) for n in range(COUNT)]),
            "LeafDigests": LeafDigests(art.index, (bytes(32),) * COUNT),
            "PeerSource": PeerSource(server.url, "b" * 56),
        }
        several.close()
    assert cut_shards(art.index)


NAMES = [
    *("TensorSet", "several", "arrays", "Tensor", "slice", "hostile", "View", "subset", "Materialized"),
    *("ViewExplanation", "NormalView", "ViewPlan", "TensorIndex", "TensorEntry", "TensorDType", "Deferred", "Engine"),
    *("TensorWriter", "TensorServer", "Replica", "ExtentMap", "LeafDigests", "PeerSource"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_repr_is_short_and_says_something(everything: dict[str, Any], name: str) -> None:
    text = repr(everything[name])
    assert len(text) <= 600, len(text)
    assert " object at 0x" not in text
    assert "\x1b" not in text
    assert "\n" not in text


def test_reprs_name_what_they_show(everything: dict[str, Any]) -> None:
    assert repr(everything["Tensor"]) == "Tensor('layers.1.w', torch.float32, shape=(2, 3))"
    assert repr(everything["slice"]) == "Tensor('layers.1.w', torch.float32, shape=(2,), part of (2, 3))"
    assert f"{COUNT + 1} tensors" in repr(everything["TensorSet"])
    assert "2 sources" in repr(everything["several"])
    assert everything["View"].view_id[:12] in repr(everything["View"])
    assert "http://127.0.0.1" in repr(everything["TensorServer"])


@pytest.mark.parametrize("name", ["TensorSet", "View", "Materialized", "hostile"])
def test_html_is_bounded_and_escaped(everything: dict[str, Any], name: str) -> None:
    text = everything[name]._repr_html_()
    assert len(text) < 20_000
    assert "<table>" in text
    assert "<script>" not in text
    if name in ("TensorSet", "View"):
        assert f"{COUNT - 49} more" in text


def test_a_file_of_this_size_prints_little(tmp_path: Path) -> None:
    art = write_tensors(tmp_path / "t", {f"layers.{n}.w": np.zeros(2, np.float32) for n in range(200)})
    assert len(repr(art["layers.0.w"])) < 200
    assert len(repr(art)) < 300
