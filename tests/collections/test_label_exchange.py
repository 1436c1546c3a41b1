"""If this fails, an import or export of labels loses something silently, or leaves half of itself behind."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import warpdata as wd
from tests.cli.scenes import run
from tests.collections.scenes import png
from tests.exporters.scenes import files_of
from tests.faults.scenes import link, memory
from warpdata.cli.label_report import LABEL_FORMAT_NAMES
from warpdata.collections import Collection, task_changes
from warpdata.errors import AlreadyExistsError, BadInputError, CorruptError, InvalidSourceError
from warpdata.formats.labels import LABEL_FORMATS, Annotation

numbers = count()
DRAWN: dict[str, list[Annotation]] = {
    "cats/1.png": [wd.Box("cat", 1, 2, 3.5, 4, attributes={"score": 0.5}), wd.Label("cat")],
    "dogs/1.png": [wd.Polygon("dog", [(1, 1), (5, 1), (5, 1 / 3)]), wd.Polyline("lead", [(0, 0), (4, 4)])],
    "none.png": [],
}


def empty() -> Collection:
    return wd.collection("a/pets", store=link(memory(f"exchange-{next(numbers)}")))


def pets() -> Collection:
    collection = empty()
    with collection.changes("draw") as change:
        for number, (path, drawn) in enumerate(DRAWN.items()):
            change.add(path, png(number, 20, 10), annotations=drawn, split="train", tags=["day"])
    return collection


def coco(top: Path, **changes: Any) -> Path:
    top.mkdir(exist_ok=True)
    body: dict[str, Any] = {
        "images": [{"id": n, "file_name": f"{n}.png", "width": 20, "height": 10} for n in range(3)],
        "annotations": [{"id": 1, "image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4]}],
        "categories": [{"id": 1, "name": "cat", "supercategory": "animal"}, {"id": 2, "name": "dog"}],
    }
    (top / "instances_val.json").write_text(json.dumps(body | changes))
    return top


@pytest.mark.parametrize("name", ["coco", "cvat", "label-studio", "datumaro", "csv", "parquet", "platform"])
def test_an_export_is_imported_again(name: str, tmp_path: Path) -> None:
    first = pets()
    done = first.export_labels(tmp_path / "out", name)
    second = empty()
    back = second.import_labels(tmp_path / "out", name)
    lost = {item.fact for item in done.report.lost}
    for path, drawn in DRAWN.items():
        kept = [one for one in drawn if f"{one.kind}s" not in lost and one.kind not in lost]
        assert second.annotations(path) == kept
        assert second.read(path) == first.read(path)
    assert back.added_images == 3
    rows = second.head.table("images").raw().to_arrow().to_pylist()
    assert {row["split"] for row in rows} == {"train"}


def test_labels_go_to_images_of_head_and_the_rest_is_listed(tmp_path: Path) -> None:
    collection = empty()
    collection.add("0.png", png(0, 20, 10))
    top = coco(tmp_path / "coco")
    (top / "1.png").write_bytes(png(1, 40, 10))
    done = collection.import_labels(top, "coco")
    assert (done.added_images, done.added_annotations) == (1, 1)
    assert collection.annotations("0.png") == [wd.Box("cat", 1, 2, 3, 4)]
    lost = {item.fact: item for item in done.report.lost}
    assert (lost["images"].count, lost["images"].first) == (1, "2.png")
    assert lost["supercategories"].count == lost["classes without objects"].count == 1
    assert lost["ids of objects"].count == 1
    assert collection.head.table("images").filter("path = '1.png'").to_arrow().to_pylist()[0]["width"] == 40
    again = collection.import_labels(top, "coco")
    assert (again.added_images, again.added_annotations, again.version) == (0, 0, done.version)


def test_other_annotations_of_an_image_are_kept_unless_asked(tmp_path: Path) -> None:
    drawn, top = wd.Label("mine"), coco(tmp_path / "coco")
    for existing, expected in (("keep", ["mine"]), ("add", ["mine", "cat"]), ("replace", ["cat"])):
        collection = empty()
        collection.add("0.png", png(0, 20, 10), annotations=[drawn])
        done = collection.import_labels(top, "coco", existing=existing)
        assert [one.class_name for one in collection.annotations("0.png")] == expected
        assert ("objects" in {item.fact for item in done.report.lost}) == (existing == "keep")


def test_an_import_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidSourceError, match="none of the 3 images"):
        empty().import_labels(coco(tmp_path / "coco"), "coco")
    with pytest.raises(BadInputError, match="is not known"):
        empty().import_labels(tmp_path, "cocoa")
    with pytest.raises(CorruptError):
        empty().import_labels(coco(tmp_path / "bad", annotations=[{"image_id": 9}]), "coco")


def test_workers_of_an_engine_write_the_same_images(tmp_path: Path) -> None:
    collection = pets()
    plain = collection.export_labels(tmp_path / "plain", "coco")
    divided = collection.export_labels(tmp_path / "divided", "coco", engine="threads")
    assert (divided.files, divided.report) == (plain.files, plain.report)
    assert files_of(tmp_path / "divided") == files_of(tmp_path / "plain")


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    collection = pets()
    with pytest.raises(BadInputError, match="task"):
        collection.export_labels(tmp_path / "out", "yolo", task="paint")
    collection.export_labels(tmp_path / "out", "yolo")
    with pytest.raises(AlreadyExistsError):
        collection.export_labels(tmp_path / "out", "yolo")
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_an_export_can_be_part_of_a_version(tmp_path: Path) -> None:
    collection = pets()
    collection.create_version("v1")
    collection.add("new.png", png(9, 20, 10))
    done = collection.export_labels(tmp_path / "out", "coco", "v1", filter="path LIKE 'cats/%'", images=False)
    assert done.report.taken["images"] == 1
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == ["instances_train.json"]


def test_tasks_follow_the_content_of_images() -> None:
    collection = pets()
    first = collection.head
    assert [path for _, path in task_changes(None, first).created] == ["none.png", "dogs/1.png", "cats/1.png"]
    collection.add("none.png", png(9, 20, 10), replace=True)
    collection.remove("cats/1.png")
    collection.add("moved/1.png", png(0, 20, 10))
    changed = task_changes(first, collection.head)
    assert ([path for _, path in changed.created], changed.kept) == (["none.png"], 2)
    assert [path for _, path in changed.deleted] == ["none.png"]
    assert [path for _, path in task_changes(first, collection.head, "path LIKE 'moved/%'").created] == ["moved/1.png"]
    assert not task_changes(first, first).created


def test_the_command_line_names_every_format() -> None:
    assert tuple(LABEL_FORMATS) == LABEL_FORMAT_NAMES


def test_commands_import_and_export(tmp_path: Path) -> None:
    top = coco(tmp_path / "coco", images=[{"id": 0, "file_name": "0.png", "width": 20, "height": 10}])
    (top / "0.png").write_bytes(png(0, 20, 10))
    store = ("--store", str(tmp_path / "store"))
    done = run("import", "coco", "a/pets", str(top), "--json", *store)
    assert json.loads(done.stdout)["added_images"] == 1
    shown = run("export", "yolo", "a/pets", str(tmp_path / "out"), *store)
    assert "objects" in shown.stdout
    assert (tmp_path / "out" / "labels" / "val" / "0.txt").read_text() == "0 0.125 0.4 0.15 0.4\n"
    same = run("export", "a/pets", str(tmp_path / "out2"), "--format", "cvat", "--json", *store)
    assert json.loads(same.stdout)["out"]["boxes"] == 1
    quality = run("labels", "quality", "a/pets", "--json", *store)
    assert json.loads(quality.stdout)["counts"]["tiny"] == 1
    assert run("labels", "inbox", "ls", "a/pets", "--json", *store).stdout.strip() == '{\n  "items": []\n}'
