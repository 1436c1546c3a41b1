"""If this fails, a comparison of checkpoints calls a tensor the same that changed, or the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warpdata as wd
from warpdata.errors import BadInputError

RNG = np.random.default_rng(1)
BIG = (1200, 1000)  # 4.8 MB: a stored file of its own


def checkpoint() -> dict[str, Any]:
    arrays: dict[str, Any] = {f"layers.{at}.w": RNG.normal(size=BIG).astype(np.float32) for at in range(3)}
    arrays |= {f"layers.{at}.bias": RNG.normal(size=1000).astype(np.float32) for at in range(3)}
    return {**arrays, "head.w": np.ones((4, 5), np.float32), "head.b": np.zeros(5, np.float32)}


def publish(store: Path, arrays: dict[str, Any], label: str, name: str = "weights") -> wd.Dataset:
    wd.DatasetBuilder("acme/model", str(store)).add_tensors(name, arrays).publish(label=label, replace=True)
    return wd.dataset(f"acme/model@{label}", store=str(store))


def kinds(found: Any) -> dict[str, str]:
    return {change.name: change.kind for change in found.changes}


def test_a_comparison_by_hash_equals_one_by_bytes(tmp_path: Path) -> None:
    before = checkpoint()
    after = {name: array.copy() for name, array in before.items()}
    after["layers.1.w"][5, 5] += 1
    after["layers.1.bias"][0] += 1
    del after["head.b"]
    after["head.w"] = np.ones((5, 4), np.float32)
    after["head.scale"] = np.ones(1, np.float32)
    found = publish(tmp_path, after, "b").diff_tensors(publish(tmp_path, before, "a"))
    assert found.counts["undecided"] <= 4
    decided = found.decide()
    assert kinds(decided) == {
        "head.b": "removed",
        "head.scale": "added",
        "head.w": "retyped",
        "layers.0.bias": "same",
        "layers.0.w": "same",
        "layers.1.bias": "changed",
        "layers.1.w": "changed",
        "layers.2.bias": "same",
        "layers.2.w": "same",
    }
    known = kinds(found)
    assert all(known[name] in (kind, "undecided") for name, kind in kinds(decided).items())
    assert known["layers.1.w"] == "changed"
    assert known["layers.0.w"] == known["layers.2.w"] == "same", "although all bytes are at other positions"
    assert decided.counts["undecided"] == decided.undecided_bytes == 0
    assert found.decide(max_bytes=0).counts == found.counts


def test_a_comparison_reads_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = checkpoint()
    after = {**before, "layers.1.w": before["layers.1.w"] * 2}
    older, newer = publish(tmp_path, before, "a"), publish(tmp_path, after, "b")
    monkeypatch.setattr(
        "warpdata.formats.tensors.replica.Replica.transfer_task", lambda *_, **__: pytest.fail("data was read")
    )
    found = newer.diff_tensors(older)
    assert found.counts["changed"] == 1
    assert found.counts["same"] == 7, "no neighbour of small tensors changed"
    assert repr(found) == "TensorDiff(changed=1, same=7)"


def test_equal_sets_and_two_sets_of_one_version(tmp_path: Path) -> None:
    arrays = checkpoint()
    builder = wd.DatasetBuilder("acme/model", str(tmp_path)).add_tensors("raw", arrays)
    builder.add_tensors("ema", {**arrays, "layers.0.w": arrays["layers.0.w"] + 1}).publish()
    dataset = wd.dataset("acme/model", store=str(tmp_path))
    assert dataset.diff_tensors(dataset, "raw").counts["same"] == len(arrays)
    found = dataset.diff_tensors(dataset, "ema", older_name="raw")
    assert found.counts["changed"] == 1
    measured = found.difference("layers.0.w")
    assert measured.max_absolute == pytest.approx(1, rel=1e-5)
    assert measured.changed_count == arrays["layers.0.w"].size
    with pytest.raises(BadInputError, match="not a tensor of both"):
        found.difference("nothing")


def test_one_changed_bit_anywhere_is_found(tmp_path: Path) -> None:
    """At the ends of leaves and files too."""
    arrays = checkpoint()
    older = publish(tmp_path, arrays, "a")
    for at, (name, place) in enumerate([("layers.0.w", 0), ("layers.2.w", -1), ("head.w", -1), ("layers.1.bias", 0)]):
        changed = {**arrays, name: arrays[name].copy()}
        changed[name].reshape(-1)[place] += 1
        found = publish(tmp_path, changed, f"b{at}").diff_tensors(older)
        assert kinds(found)[name] in ("changed", "undecided")
        assert [one for one, kind in kinds(found.decide()).items() if kind == "changed"] == [name]
