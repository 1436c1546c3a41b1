"""If this fails, the service describes or compares tensors otherwise than the library does, or for the wrong people."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warpdata as wd
from tests.server.conftest import Scene
from warpdata.tensors import describe_tensor

ROBOTS = "/api/v1/datasets/acme/robots"


def get(scene: Scene, path: str, **query: Any) -> dict[str, Any]:
    answer = scene["vera"].get(f"{ROBOTS}/{path}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_tree_adds_up(robots: Scene) -> None:
    art = wd.dataset("acme/robots", store=robots.store).tensors()
    root = get(robots, "tensors/tree")
    assert (root["tensors"], root["size_bytes"]) == (len(art), art.index.total_size)
    assert root["artifact_id"] == art.artifact_id
    assert sum(node["tensors"] for node in root["nodes"]) == len(art)
    assert sum(node["size_bytes"] for node in root["nodes"]) == sum(one.byte_size for one in art.index)
    assert [node["label"] for node in root["nodes"]] == ["embed", "head", "layers", "steps"]
    layers = get(robots, "tensors/tree", prefix="layers")["nodes"]
    assert [node["label"] for node in layers] == [str(at) for at in range(12)]
    deep = get(robots, "tensors/tree", prefix="layers.3")["nodes"]
    assert [(node["path"], node["is_group"]) for node in deep] == [
        ("layers.3.attn", True),
        ("layers.3.mlp", True),
        ("layers.3.norm", False),
    ]
    assert deep[2]["tensor"] == {
        "name": "layers.3.norm",
        "dtype": "float16",
        "shape": [24],
        "elements": 24,
        "size_bytes": 48,
    }
    first = get(robots, "tensors/tree", prefix="layers", limit=5)
    assert first["next_cursor"] == "layers.4"
    assert len(get(robots, "tensors/tree", prefix="layers", cursor="layers.4")["nodes"]) == 7
    assert get(robots, "tensors/tree", prefix="nothing")["nodes"] == []


def test_tensors_are_found_by_a_part_of_their_names(robots: Scene) -> None:
    found = get(robots, "tensors", contains="ATTN", limit=7)
    assert found["total"] == 12
    names = [one["name"] for one in found["tensors"]]
    names += [one["name"] for one in get(robots, "tensors", contains="ATTN", cursor=found["next_cursor"])["tensors"]]
    art = wd.dataset("acme/robots", store=robots.store).tensors()
    assert names == [name for name in art.names() if "attn" in name]


def test_statistics_are_those_of_python(robots: Scene) -> None:
    art = wd.dataset("acme/robots", store=robots.store).tensors()
    shown = get(robots, "tensors/statistics", tensor="embed.weight")
    wanted = describe_tensor(art, "embed.weight")
    values = art["embed.weight"].numpy()
    assert shown["nan"] == 1
    assert shown["minimum"] == np.nanmin(values)
    assert shown["mean"] == wanted.mean == pytest.approx(np.nanmean(values.astype(np.float64)))
    assert shown["counts"] == list(wanted.counts)
    assert (shown["is_sampled"], shown["read"]) == (False, values.size)
    assert get(robots, "tensors/statistics", tensor="steps")["maximum"] == 1000
    missing = robots["vera"].get(f"{ROBOTS}/tensors/statistics", params={"tensor": "embed.wieght"})
    assert missing.status_code == 404
    assert "embed.weight" in missing.json()["hint"]


def test_a_comparison_is_that_of_python(robots: Scene) -> None:
    open_ = wd.connect(robots.store).dataset
    wanted = open_("acme/robots@step-2").diff_tensors(open_("acme/robots@step-1"))
    shown = get(robots, "tensors/diff", **{"from": "step-1", "to": "step-2"})
    assert shown["counts"] == wanted.counts
    assert shown["undecided_bytes"] == wanted.undecided_bytes > 0
    assert {one["name"]: one["change"] for one in shown["changes"]} == {
        one.name: one.kind for one in wanted.changes if one.kind != "same"
    }
    decided = get(robots, "tensors/diff", **{"from": "step-1", "read": True})
    assert decided["counts"] == {
        **dict.fromkeys(("added", "removed", "retyped"), 1),
        "changed": 2,
        "undecided": 0,
        "same": 35,
    }
    retyped = next(one for one in decided["changes"] if one["change"] == "retyped")
    assert (retyped["before"]["shape"], retyped["after"]["shape"]) == ([16, 24], [8, 24])
    only = get(robots, "tensors/diff", **{"from": "step-1", "change": "added"})
    assert [one["name"] for one in only["changes"]] == ["head.scale"]


def test_the_size_of_a_difference_is_measured_on_demand(robots: Scene) -> None:
    shown = get(robots, "tensors/difference", **{"from": "step-1", "tensor": "head.weight"})
    assert shown["max_absolute"] == pytest.approx(0.25, rel=1e-5)
    assert shown["changed"] == shown["elements"] == shown["read"]
    for tensor, status in (("layers.0.attn.weight", 422), ("head.scale", 404), ("nothing", 404)):
        answer = robots["vera"].get(f"{ROBOTS}/tensors/difference", params={"from": "step-1", "tensor": tensor})
        assert answer.status_code == status


def test_what_a_user_may_not_read_does_not_exist(robots: Scene) -> None:
    query = "from=step-1&tensor=head.weight"
    for path in ("tensors", "tensors/tree", f"tensors/statistics?{query}", f"tensors/diff?{query}"):
        assert robots["rita"].get(f"{ROBOTS}/{path}").status_code == 404
        assert robots.client(None).get(f"{ROBOTS}/{path}").status_code == 401
    assert robots["rita"].get(f"{ROBOTS}/tensors/difference?{query}").status_code == 404
    assert robots["vera"].get("/api/v1/datasets/acme/pets/tensors").status_code == 404
