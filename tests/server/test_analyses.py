"""If this fails, a statistic or a map misstates its version, or leads to other rows than those it counts."""

from __future__ import annotations

import base64
import io
from collections import Counter
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import warpdata as wd
from tests.server.conftest import Scene
from warpdata.collections import QualityOptions
from warpdata.server import analyses
from warpdata.server.jobs import JobWorker

TOWN = "/api/v1/datasets/acme/town"
POINTS = "/api/v1/datasets/acme/points"
ROWS, SIZE = 300, 6


def encoded_image(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).resize((80, 60), Image.Resampling.BILINEAR).save(out, "PNG")
    return out.getvalue()


def boxes_of(at: int) -> list[Any]:
    """Boxes of two classes, a label, a polygon and a turned box."""
    rng = np.random.default_rng(at)
    found: list[Any] = [
        wd.Box(("car", "bus")[int(rng.integers(2))], *rng.integers(0, 40, 2).tolist(), *rng.integers(1, 30, 2).tolist())
        for _ in range(at % 4)
    ]
    if at % 5 == 0:
        found.append(wd.Polygon("roof", [[(1, 1), (30, 1), (20, 22)]]))
    if at % 6 == 0:
        found += [wd.Label("day"), wd.Box("car", 20, 20, 10, 4, rotation=30)]
    return found


@pytest.fixture
def town(local: Scene) -> Scene:
    """`acme/town`: a collection with annotations of several kinds, and one image in two splits."""
    collection = wd.create_collection("acme/town", store=local.store)
    with collection.changes("add") as change:
        for at in range(24):
            split = ("train", "train", "val", None)[at % 4]
            change.add(f"{at:02}.png", encoded_image(at % 23), annotations=boxes_of(at), split=split)
    return local


@pytest.fixture
def points(local: Scene) -> Scene:
    """`acme/points`: a table with vectors, of which some are null."""
    rng = np.random.default_rng(2)
    vectors: list[Any] = (rng.normal(size=(ROWS, SIZE)) * [9, 4, 1, 1, 1, 1]).astype(np.float32).tolist()
    vectors[7] = None
    table = pa.table(
        {
            "emb": pa.array(vectors, pa.list_(pa.float32(), SIZE)),
            "kind": [("a", "b", None)[at % 3] for at in range(ROWS)],
            "score": [float("nan") if at == 5 else at / 3 for at in range(ROWS)],
            "note": [f"word{at % 10} other" for at in range(ROWS)],
        }
    )
    wd.DatasetBuilder("acme/points", local.store).add_table("main", table).publish()
    return local


def ask(scene: Scene, path: str, user: str = "vera", **query: Any) -> Any:
    answer = scene[user].get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def behind(scene: Scene, *subsets: str, **query: Any) -> list[str]:
    """Return the images that Browse shows behind a statistic."""
    page = ask(scene, f"{TOWN}/samples", table="images", columns="path", subset=list(subsets), **query)
    assert page["total"] == len(page["samples"])
    return [sample["values"]["path"] for sample in page["samples"]]


def test_distributions_equal_an_independent_count(town: Scene) -> None:
    found = ask(town, f"{TOWN}/label-distributions")
    placed = [(at, one) for at in range(24) for one in boxes_of(at)]
    assert (found["images"], found["objects"]) == (24, len(placed))
    splits = ["train", "val", ""]
    assert found["splits"] == splits
    assert found["images_by_split"] == [12, 6, 6]
    split_of = [("train", "train", "val", "")[at % 4] for at in range(24)]
    for one in found["classes"]:
        having = [at for at, held in placed if held.class_name == one["class_name"]]
        assert one["objects"] == [sum(split_of[at] == split for at in having) for split in splits]
        assert one["images"] == [sum(split_of[at] == split for at in set(having)) for split in splits]
    counts = Counter(len(boxes_of(at)) for at in range(24))
    for one in found["objects_per_image"]:
        inside = [n for n in counts if n >= one["low"] and (one["high"] is None or n < one["high"])]
        assert one["count"] == sum(counts[n] for n in inside)
        end = "" if one["high"] is None else f"{one['high']:.0f}"
        assert len(behind(town, f"objects:{one['low']:.0f}:{end}")) == one["count"]
    for row, name in enumerate(found["paired"]):
        for column, other in enumerate(found["paired"]):
            both = behind(town, f"class:{name}", f"class:{other}")
            assert len(both) == found["together"][row][column]
    assert found["unplaced"] == sum(isinstance(held, wd.Label) for _, held in placed)
    for one in found["aspects"] + found["sizes"]:
        assert len(behind(town, filter=one["filter"])) == one["count"] == 24


def test_each_cell_of_a_heat_map_leads_to_its_images(town: Scene) -> None:
    found = ask(town, f"{TOWN}/label-distributions")
    cells = found["heat_cells"]
    wanted: dict[tuple[int, int], list[str]] = {}
    for at in range(24):
        for one in boxes_of(at):
            if isinstance(one, wd.Box) and not one.rotation:
                x, y = (one.x + one.width / 2) / 80, (one.y + one.height / 2) / 60
                wanted.setdefault((int(x * cells), int(y * cells)), []).append(f"{at:02}.png")
    plain = np.zeros((cells, cells), int)
    for (column, row), paths in wanted.items():
        plain[row, column] = len(paths)
        assert set(paths) <= set(behind(town, f"cell:{column}:{row}"))
    heat = np.array(found["heat"]).reshape(cells, cells)
    others = sum(
        isinstance(one, wd.Polygon) or bool(getattr(one, "rotation", 0)) for a in range(24) for one in boxes_of(a)
    )
    assert (heat >= plain).all()
    assert heat.sum() - plain.sum() == others
    assert sum(map(sum, found["heat_by_class"].values())) == heat.sum()
    assert sum(one["count"] for one in found["areas"]) == heat.sum()
    roof = np.argmax(found["heat_by_class"]["roof"])
    assert behind(town, f"cell:{roof % cells}:{roof // cells}:roof") == [f"{at:02}.png" for at in range(0, 24, 5)]


def test_quality_leads_to_the_images_with_findings(town: Scene) -> None:
    found = ask(town, f"{TOWN}/label-quality")
    quality = wd.connect(town.store).collection("acme/town").quality()
    assert found["is_ready"]
    for one in found["checks"]:
        paths = quality.paths(one["check"])
        assert one["findings"] == quality.counts[one["check"]]
        assert one["images"] == len(paths)
        assert behind(town, f"quality:{one['check']}") == sorted(paths)
    assert [(leak["check"], leak["splits"], leak["pairs"]) for leak in found["leaks"]] == [
        ("leakage", ["", "train"], 1)
    ]
    assert behind(town, "leak:leakage:train:") == ["00.png", "23.png"]


def test_similar_images_are_found_by_a_job_and_kept(town: Scene) -> None:
    query: dict[str, Any] = {"near_bits": 3}
    assert not ask(town, f"{TOWN}/label-quality", **query)["is_ready"]
    body = {"kind": "quality", "near_bits": 3}
    job = town["vera"].post(f"{TOWN}/analyses", json=body).json()
    again = town["vera"].post(f"{TOWN}/analyses", json=body).json()
    assert again["id"] == job["id"], "an analysis that is under way is not started again"
    assert ask(town, f"{TOWN}/label-quality", **query)["job_id"] == job["id"]
    assert JobWorker(town.service).run_next()
    assert ask(town, f"/api/v1/jobs/{job['id']}")["state"] == "done"
    options = QualityOptions(near_bits=3)
    wanted = wd.connect(town.store).collection("acme/town").quality(options=options)
    for _ in range(2):
        found = ask(town, f"{TOWN}/label-quality", **query)
        assert {one["check"]: one["findings"] for one in found["checks"]} == dict(wanted.counts)
        assert found["images"] == 24
        town.service.analyses.clear()  # the second time, the store has it
    near = behind(town, "quality:near_leakage:3")
    assert near == sorted(wanted.paths("near_leakage"))


def polygon_text(corners: list[tuple[int, int]]) -> str:
    return base64.urlsafe_b64encode(np.array(corners, "<u2").tobytes()).decode().rstrip("=")


def read(scene: Scene, path: str, kind: str, **query: Any) -> np.ndarray[Any, Any]:
    answer = scene["vera"].get(f"{POINTS}/map/{path}", params={"column": "emb", **query})
    assert answer.status_code == 200, answer.text
    return np.frombuffer(answer.content, kind)


def test_a_map_is_the_projection_of_the_library(points: Scene) -> None:
    shown = ask(points, f"{POINTS}/map", column="emb")
    projection = wd.connect(points.store).dataset("acme/points").project("main", "emb")
    assert (shown["is_ready"], shown["rows"], shown["points"], shown["has_gaps"]) == (True, ROWS, ROWS - 1, True)
    placed = read(points, "points", "<u2").reshape(-1, 2)
    rows = read(points, "rows", "<u4")
    assert np.array_equal(placed, projection.points)
    assert rows.tolist() == [at for at in range(ROWS) if at != 7]
    table = wd.connect(points.store).dataset("acme/points").table().to_arrow()
    vectors = np.array([one for one in table["emb"].to_pylist() if one is not None])
    centred = vectors - vectors.mean(0)
    _, singular, axes = np.linalg.svd(centred, full_matrices=False)
    wanted = centred @ axes[:2].T
    for axis in range(2):
        assert abs(np.corrcoef(wanted[:, axis], placed[:, axis])[0, 1]) > 0.99999
    assert shown["explained"] == pytest.approx((singular**2 / (singular**2).sum())[:2], abs=1e-6)


def test_colours_say_what_they_mean(points: Scene) -> None:
    legend = ask(points, f"{POINTS}/map/legend", column="emb", field="kind")
    colors = read(points, "colors", "u1", field="kind")
    kinds = [("a", "b", None)[at % 3] for at in range(ROWS) if at != 7]
    assert [(one["value"], one["count"]) for one in legend["colors"]] == [
        ("a", kinds.count("a")),
        ("b", kinds.count("b")),
    ]
    assert legend["nulls"] == kinds.count(None)
    assert [{0: "a", 1: "b", 255: None}[code] for code in colors.tolist()] == kinds
    assert ask(points, f"{POINTS}/map/legend", column="emb", field="score")["maximum"] == pytest.approx(299 / 3)
    scores = read(points, "colors", "u1", field="score")
    assert (scores[0], scores[5], scores[-1]) == (0, 255, 253)
    assert points["vera"].get(f"{POINTS}/map/legend?column=emb&field=emb").status_code == 404


def test_a_region_of_a_map_is_exactly_the_rows_inside(points: Scene) -> None:
    placed = read(points, "points", "<u2").reshape(-1, 2).astype(int)
    rows = read(points, "rows", "<u4")
    corners = [(10_000, 20_000), (50_000, 5_000), (60_000, 60_000), (30_000, 30_000), (12_000, 62_000)]
    subset = f"map:emb:{polygon_text(corners)}"
    found = ask(points, f"{POINTS}/samples", subset=subset, limit=1000)
    wanted = [int(row) for row, (x, y) in zip(rows, placed, strict=True) if winding(corners, x, y)]
    assert 20 < len(wanted) < ROWS - 20
    assert [sample["row"] for sample in found["samples"]] == wanted
    counted = ask(points, f"{POINTS}/stats", columns="kind", subset=subset)["columns"][0]
    assert counted["rows"] == len(wanted)
    near = points["vera"].post(f"{POINTS}/search", json={"text": "word3", "column": "note", "subsets": [subset]}).json()
    assert near["searched"] == len(wanted)
    assert [hit["row"] for hit in near["hits"]] == [row for row in wanted if row % 10 == 3][:10]


def winding(corners: list[tuple[int, int]], x: int, y: int) -> bool:
    """An independent test: the angles to the corners add up to a full turn inside."""
    angles = [np.arctan2(b - y, a - x) for a, b in corners]
    turns = [
        (two - one + np.pi) % (2 * np.pi) - np.pi for one, two in zip(angles, angles[1:] + angles[:1], strict=True)
    ]
    return bool(abs(sum(turns)) > np.pi)


def test_a_large_map_is_computed_by_a_job(points: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyses, "INLINE_NUMBERS", 10)
    assert not ask(points, f"{POINTS}/map", column="emb")["is_ready"]
    for path in ("map/points", "map/rows", "map/colors"):
        assert points["vera"].get(f"{POINTS}/{path}?column=emb&field=kind").status_code == 404
    job = points["vera"].post(f"{POINTS}/analyses", json={"kind": "map", "column": "emb"}).json()
    assert ask(points, f"{POINTS}/map", column="emb")["job_id"] == job["id"]
    assert JobWorker(points.service).run_next()
    points.service.analyses.clear()
    shown = ask(points, f"{POINTS}/map", column="emb")
    assert (shown["is_ready"], shown["points"], shown["sampled_rows"]) == (True, ROWS - 1, ROWS - 1)
    version = shown["version"]
    pinned = points["vera"].get(f"{POINTS}/map/points?column=emb&ref={version}")
    assert "immutable" in pinned.headers["cache-control"]
    for info in points.service.session.writer.list_objects("service/analyses"):
        points.service.session.writer.replace(info.key, b"damaged")
    points.service.analyses.clear()
    assert not ask(points, f"{POINTS}/map", column="emb")["is_ready"]


BAD_SUBSETS = [
    "",
    "nonsense:1",
    "row:x",
    "cell:1",
    "cell:99:0",
    "area:99",
    "objects:1",
    "quality:none",
    "leak:leakage:a",
    "map:emb",
    f"map:emb:{polygon_text([(1, 1)])}",
    "map:emb:!",
    "class:" + "x" * 5000,
    "row:" + "9" * 30,
]


def test_what_is_no_subset_is_refused(town: Scene) -> None:
    for subset in BAD_SUBSETS:
        answer = town["vera"].get(f"{TOWN}/samples", params={"table": "images", "subset": subset})
        assert answer.status_code == 422, subset
        assert answer.headers["content-type"] == "application/problem+json"
    assert town["vera"].get("/api/v1/datasets/acme/pets/samples", params={"subset": "cell:1:1"}).status_code == 422


def test_a_subset_has_names_with_any_letters(town: Scene) -> None:
    collection = wd.connect(town.store).collection("acme/town")
    collection.annotate("03.png", [wd.Box("a:b/ü %", 1, 1, 78, 58)])
    assert behind(town, "class:" + quote("a:b/ü %", safe="")) == ["03.png"]
    assert behind(town, "area:8:" + quote("a:b/ü %", safe="")) == ["03.png"]
    assert behind(town, "row:3") == ["03.png"]
    assert behind(town, "row:99") == []


def test_an_example_is_remembered_by_its_appearance(town: Scene) -> None:
    wd.DatasetBuilder("acme/shown", town.store).add_table("main", {"image": ["a.png", "b.png"]}).add_artifact(
        "files", {"a.png": encoded_image(1), "b.png": encoded_image(2)}, kind="files"
    ).bind("main", "image", "files", "image").publish()
    route = "/api/v1/datasets/acme/shown/search"
    near: dict[str, Any] = {"column": "image", "image": base64.b64encode(encoded_image(2)).decode()}
    first = town["vera"].post(route, json={"near": near}).json()
    assert (first["hits"][0]["row"], first["hits"][0]["score"]) == (1, 1.0)
    for other in ({"appearance": first["appearance"]}, {"row": 1}):
        again = town["vera"].post(route, json={"near": {"column": "image", **other}}).json()
        assert again == {**first, "explanation": again["explanation"]}
    library = wd.connect(town.store).dataset("acme/shown").search(near=("image", int(first["appearance"], 16)))
    assert library.scores == [hit["score"] for hit in first["hits"]]
    damaged = {"column": "image", "image": base64.b64encode(b"no image").decode()}
    assert town["vera"].post(route, json={"near": damaged}).status_code == 422


def test_the_history_of_a_sample_names_the_commits_that_changed_it(town: Scene) -> None:
    collection = wd.connect(town.store).collection("acme/town")
    collection.annotate("03.png", [wd.Box("kite", 1, 1, 8, 8)])
    collection.annotate("04.png", [wd.Label("other")])
    with collection.head.edit("move to val") as edit:
        edit.update("images", "path = '03.png'", {"split": "val"})
    collection.annotate("03.png", [wd.Box("kite", 2, 1, 8, 8)], replace=True)
    sample = ask(town, f"{TOWN}/samples", table="images", filter="path = '03.png'")["samples"][0]
    route = f"{TOWN}/samples/{sample['id']}/history"
    found = ask(town, route, table="images")
    replaced, moved, annotated, added = found["changes"]
    had = len(boxes_of(3))
    assert (replaced["annotations_added"], replaced["annotations_removed"]) == (1, had + 1)
    assert (moved["columns"], moved["commit"]["message"]) == (["split"], "move to val")
    assert (annotated["change"], annotated["columns"], annotated["annotations_added"]) == ("changed", [], 1)
    assert (added["change"], added["annotations_added"], added["commit"]["message"]) == ("added", had, "add")
    commits = ask(town, f"{TOWN}/commits")["commits"]
    assert (found["searched"], found["is_complete"]) == (len(commits), True)
    short = ask(town, route, table="images", limit=1)
    assert ([one["change"] for one in short["changes"]], short["is_complete"]) == (["changed"], False)
    assert town["vera"].get(f"{TOWN}/samples/99999/history?table=images").status_code == 404
    assert town["rita"].get(route).status_code == 404


def test_what_a_user_may_not_read_has_no_statistics(points: Scene, town: Scene) -> None:
    paths = [f"{TOWN}/label-distributions", f"{TOWN}/label-quality", f"{TOWN}/samples?subset=row:1"]
    paths += [f"{POINTS}/map{part}?column=emb&field=kind" for part in ("", "/points", "/rows", "/legend", "/colors")]
    for path in paths:
        assert points["rita"].get(path).status_code == 404
        assert points.client(None).get(path).status_code == 401
    assert points["rita"].post(f"{POINTS}/analyses", json={"kind": "map", "column": "emb"}).status_code == 404
