"""If this fails, a damaged or hostile file of labels is read as something, writes outside, or kills the reader."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import warpdata as wd
from tests.faults.scenes import link, memory
from tests.formats.labels.scenes import image_bytes
from warpdata.errors import BadInputError, CorruptError, LimitExceededError, UnsupportedError, WarpError
from warpdata.formats.labels import (
    Annotation,
    Conservation,
    LabeledImage,
    LabelOptions,
    MemoryFiles,
    check_image_path,
    label_format,
)

IMAGE = image_bytes(LabeledImage("a.png", width=10, height=10))


def read(name: str, files: dict[str, bytes], task: str | None = None) -> list[LabeledImage]:
    account = Conservation(name, "import")
    images = list(label_format(name).read(MemoryFiles(files), account, LabelOptions(task=task)).images)
    for image in images:
        account.give_image(image)
    account.report()
    return images


def coco(**changes: Any) -> dict[str, bytes]:
    body: dict[str, Any] = {
        "images": [{"id": 1, "file_name": "a.png", "width": 10, "height": 10}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}],
        "categories": [{"id": 1, "name": "cat"}],
    }
    return {"a.json": json.dumps(body | changes).encode()}


def one(**members: Any) -> dict[str, bytes]:
    return coco(annotations=[{"id": 1, "image_id": 1, "category_id": 1, **members}])


def yolo(text: str, data: str = "names: [cat]\n") -> dict[str, bytes]:
    return {"data.yaml": data.encode(), "images/a.png": IMAGE, "labels/a.txt": text.encode()}


def voc(inside: str, head: str = "") -> dict[str, bytes]:
    text = f"{head}<annotation><filename>a.png</filename>{inside}</annotation>"
    return {"Annotations/a.xml": text.encode()}


def cvat(inside: str, image: str = 'id="0" name="a.png" width="10" height="10"', head: str = "") -> dict[str, bytes]:
    return {"annotations.xml": f"{head}<annotations><image {image}>{inside}</image></annotations>".encode()}


def studio(value: Any, kind: str = "rectanglelabels", **region: Any) -> dict[str, bytes]:
    sides = {"original_width": 10, "original_height": 10}
    result = [{"type": kind, "value": value, **sides, **region}]
    return {"t.json": json.dumps([{"data": {"image": "a.png"}, "annotations": [{"result": result}]}]).encode()}


def dm(annotation: Any) -> dict[str, bytes]:
    labels = {"label": {"labels": [{"name": "cat"}]}}
    items = [{"id": "a", "image": {"path": "a.png", "size": [10, 10]}, "annotations": [annotation]}]
    return {"annotations/d.json": json.dumps({"categories": labels, "items": items}).encode()}


BOX = '<box label="cat" xtl="1" ytl="1" xbr="2" ybr="2"/>'
CORNERS = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>"
ENTITIES = '<!DOCTYPE a [<!ENTITY b "cat"><!ENTITY c "&b;&b;&b;">]>'
EXTERNAL = '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]>'
REFUSED: dict[str, tuple[str, dict[str, bytes]]] = {
    "coco text": ("coco", {"a.json": b"{"}),
    "coco not utf-8": ("coco", {"a.json": b'{"images": "\xff"}'}),
    "coco deep": ("coco", {"a.json": b"[" * 100_000}),
    "coco list": ("coco", {"a.json": b"[]"}),
    "coco nothing": ("coco", {"a.txt": b""}),
    "coco images": ("coco", coco(images={})),
    "coco image id twice": ("coco", coco(images=[{"id": 1, "file_name": "a.png"}, {"id": 1, "file_name": "b.png"}])),
    "coco image without id": ("coco", coco(images=[{"file_name": "a.png"}])),
    "coco image without name": ("coco", coco(images=[{"id": 1}])),
    "coco image side": ("coco", coco(images=[{"id": 1, "file_name": "a.png", "width": "10"}])),
    "coco tags": ("coco", coco(images=[{"id": 1, "file_name": "a.png", "tags": [1]}])),
    "coco unknown image": ("coco", coco(images=[])),
    "coco unknown category": ("coco", coco(categories=[])),
    "coco category twice": ("coco", coco(categories=[{"id": 1, "name": "a"}, {"id": 1, "name": "b"}])),
    "coco category name": ("coco", coco(categories=[{"id": 1, "name": ""}])),
    "coco skeleton": ("coco", coco(categories=[{"id": 1, "name": "a", "skeleton": [[1]]}])),
    "coco no geometry": ("coco", one()),
    "coco short box": ("coco", one(bbox=[1, 2, 3])),
    "coco text in box": ("coco", one(bbox=[1, 2, 3, "4"])),
    "coco negative box": ("coco", one(bbox=[1, 2, -3, 4])),
    "coco odd outline": ("coco", one(segmentation=[[1, 2, 3, 4, 5]])),
    "coco short outline": ("coco", one(segmentation=[[1, 2, 3, 4]])),
    "coco runs": ("coco", one(segmentation={"size": [10, 10], "counts": [1]})),
    "coco large mask": ("coco", one(segmentation={"size": [10**6, 10**6], "counts": [10**12]})),
    "coco compressed": ("coco", one(segmentation={"size": [10, 10], "counts": "\x7f\x7f"})),
    "coco keypoints": ("coco", one(keypoints=[1, 2])),
    "coco visibility": ("coco", one(keypoints=[1, 2, 9])),
    "coco attributes": ("coco", one(bbox=[1, 2, 3, 4], attributes=[1])),
    "yolo class": ("yolo", yolo("7 0.5 0.5 0.1 0.1")),
    "yolo class name": ("yolo", yolo("cat 0.5 0.5 0.1 0.1")),
    "yolo numbers": ("yolo", yolo("0 0.5 0.5 0.1")),
    "yolo text": ("yolo", yolo("0 0.5 x 0.1 0.1")),
    "yolo nan": ("yolo", yolo("0 nan 0.5 0.1 0.1")),
    "yolo huge": ("yolo", yolo("0 1e999999999 0.5 0.1 0.1")),
    "yolo negative": ("yolo", yolo("0 0.5 0.5 -0.1 0.1")),
    "yolo yaml": ("yolo", yolo("", "names: [")),
    "yolo python": ("yolo", yolo("", "names: !!python/object/apply:os.system ['true']")),
    "yolo names twice": ("yolo", yolo("", "names: [cat, cat]")),
    "yolo names": ("yolo", yolo("", "names: 5")),
    "yolo shape": ("yolo", yolo("", "names: [cat]\nkpt_shape: [1, 9]")),
    "voc text": ("voc", {"a.xml": b"<annotation>"}),
    "voc root": ("voc", {"a.xml": b"<x/>"}),
    "voc entities": ("voc", voc("<object><name>&c;</name></object>", ENTITIES)),
    "voc external": ("voc", voc("<object><name>&b;</name></object>", EXTERNAL)),
    "voc no box": ("voc", voc("<object><name>cat</name></object>")),
    "voc size": ("voc", voc("<size><width>many</width></size>")),
    "voc name": ("voc", {"a.xml": b"<annotation><filename>../a.png</filename></annotation>"}),
    "voc deep": ("voc", {"a.xml": b"<annotation>" * 100 + b"</annotation>" * 100}),
    "cvat entities": ("cvat", cvat(BOX, head=ENTITIES)),
    "cvat external": ("cvat", cvat(BOX, head=EXTERNAL)),
    "cvat root": ("cvat", {"a.xml": b"<x><image/></x>"}),
    "cvat empty": ("cvat", {"a.xml": b"<x/>"}),
    "cvat side": ("cvat", cvat(BOX, 'id="0" name="a.png" width="-1" height="10"')),
    "cvat name": ("cvat", cvat(BOX, 'id="0" name="/a.png"')),
    "cvat corner": ("cvat", cvat('<box label="cat" xtl="one" ytl="1" xbr="2" ybr="2"/>')),
    "cvat turned corner": ("cvat", cvat('<box label="cat" xtl="5" ytl="1" xbr="2" ybr="2"/>')),
    "cvat points": ("cvat", cvat('<polygon label="cat" points="1,2;3"/>')),
    "cvat infinite": ("cvat", cvat('<polygon label="cat" points="1,2;3,4;5,inf"/>')),
    "cvat class": ("cvat", cvat('<tag label=""/>')),
    "cvat mask runs": ("cvat", cvat('<mask label="cat" rle="5" left="0" top="0" width="2" height="2"/>')),
    "cvat mask place": ("cvat", cvat('<mask label="cat" rle="4" left="9" top="0" width="2" height="2"/>')),
    "studio text": ("label-studio", {"t.json": b"x"}),
    "studio task": ("label-studio", {"t.json": b"[1]"}),
    "studio data": ("label-studio", {"t.json": b'[{"data": []}]'}),
    "studio no image": ("label-studio", {"t.json": b'[{"data": {}}]'}),
    "studio up": ("label-studio", {"t.json": b'[{"data": {"image": "../../a.png"}}]'}),
    "studio labels": ("label-studio", studio({"rectanglelabels": ["a", "b"], "x": 1, "y": 1, "width": 1, "height": 1})),
    "studio number": ("label-studio", studio({"rectanglelabels": ["a"], "x": "1", "y": 1, "width": 1, "height": 1})),
    "studio points": ("label-studio", studio({"polygonlabels": ["a"], "points": [[1]]}, "polygonlabels")),
    "studio brush": ("label-studio", studio({"brushlabels": ["a"], "format": "rle", "rle": [0, 1]}, "brushlabels")),
    "studio brush size": (
        "label-studio",
        studio({"brushlabels": ["a"], "format": "rle", "rle": [255] * 9}, "brushlabels"),
    ),
    "datumaro root": ("datumaro", {"a.json": b"{}"}),
    "datumaro label": ("datumaro", dm({"type": "bbox", "label_id": 4, "bbox": [1, 2, 3, 4]})),
    "datumaro box": ("datumaro", dm({"type": "bbox", "label_id": 0, "bbox": [1, 2, 3]})),
    "datumaro no box": ("datumaro", dm({"type": "bbox", "label_id": 0})),
    "datumaro points": ("datumaro", dm({"type": "points", "label_id": 0, "points": [1, 2], "visibility": [1, 1]})),
    "masks nothing": ("masks", {"a.txt": b""}),
    "masks damaged": ("masks", {"masks/a.png": b"\x89PNG\r\n\x1a\n damaged"}),
    "csv columns": ("csv", {"a.csv": b"a,b\n1,2\n"}),
    "csv number": ("csv", {"a.csv": b"image,class,x,y,width,height\na.png,cat,one,1,1,1\n"}),
    "csv kind": ("csv", {"a.csv": b"image,class,kind\na.png,cat,blob\n"}),
    "csv geometry": ("csv", {"a.csv": b'image,class,kind,geometry\na.png,cat,polygon,"[[1,2]]"\n'}),
    "csv path": ("csv", {"a.csv": b"image,class\n../../a.png,cat\n"}),
    "parquet text": ("parquet", {"a.parquet": b"PAR1 damaged PAR1"}),
    "platform version": ("platform", {"annotations.json": b'{"images": [], "format_version": "2.0"}'}),
    "platform class": (
        "platform",
        {"annotations.json": b'{"images": [{"file_name": "a.png", "annotation": {"type": "label"}}]}'},
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_malformed_files_are_refused(case: str) -> None:
    name, files = REFUSED[case]
    with pytest.raises((CorruptError, BadInputError, LimitExceededError, UnsupportedError)) as caught:
        read(name, files)
    assert caught.value.message


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("coco", coco()),
        ("yolo", yolo("0 0.5 0.5 0.1 0.1")),
        (
            "voc",
            voc(
                "<size><width>10</width><height>10</height></size>"
                "<object><name>c</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></object>"
            ),
        ),
        ("cvat", cvat(BOX)),
        ("label-studio", studio({"rectanglelabels": ["a"], "x": 1, "y": 1, "width": 1, "height": 1})),
        ("datumaro", dm({"type": "bbox", "label_id": 0, "bbox": [1, 2, 3, 4]})),
        ("csv", {"a.csv": b"filename,width,height,class,xmin,ymin,xmax,ymax\na.png,10,10,cat,1,1,2,2\n"}),
    ],
)
def test_the_same_files_without_damage_are_read(name: str, files: dict[str, bytes]) -> None:
    [image] = read(name, files)
    assert (image.path, image.size, len(image.annotations)) == ("a.png", (10, 10), 1)


def hostile_names() -> list[str]:
    """Return 200 names that some file system, archive or tool would take for something else."""
    parts = [
        "..",
        ".",
        "",
        "a/..",
        "../a",
        "a/../../b",
        "/a",
        "//a",
        "a//b",
        "a/",
        "C:",
        "C:/a",
        "c:\\a",
        "\\\\host\\a",
        "a\\b",
    ]
    ends = ["a.", "a ", "a. ", "b./a", "b /a", ". /a", ".. /a"]
    controls = [f"a{chr(code)}b.png" for code in [*range(32), 127, *range(128, 160)]]
    unseen = [f"a{char}b.png" for char in "\u200b\u200e\u202e\u2028\u2029\ufeff\u00ad\ue000\ud800\udfff"]
    long = ["a" * 256, "a/" * 513 + "a", "ä" * 128, "x" * 1025]
    composed = [unicodedata.normalize("NFD", name) for name in ("ä.png", "é.png", "ñ/å.png", "Ώ.png", "が.png")]
    listed = [*parts, *ends, *controls, *unseen, *long, *composed]
    listed += [f"{name}/x.png" for name in parts[:12] if name] + [f"x/{name}" for name in parts]
    listed += [f"images/{name}" for name in (*parts, *ends)] + [f"{name}.jpg\0.png" for name in "abcdefgh"]
    listed += [f"{'../' * depth}etc/passwd" for depth in range(1, 12)] + [
        f"a/{'../' * depth}b" for depth in range(2, 12)
    ]
    listed += [f"dir/{name}" for name in (*unseen, *ends, *composed)]
    return list(dict.fromkeys(listed))[:200]


def test_there_are_200_hostile_names() -> None:
    assert len(hostile_names()) == 200


@pytest.mark.parametrize("name", hostile_names(), ids=lambda name: ascii(name)[:30])
def test_a_hostile_name_leads_nowhere(name: str) -> None:
    """The name is refused, or it is a safe name after the tools' own spelling of separators."""
    for make in READERS_OF_NAMES:
        try:
            images = make(name)
        except (WarpError, UnicodeError):
            continue
        for image in images:
            assert check_image_path(image.path) == image.path
            assert ".." not in image.path.split("/")


READERS_OF_NAMES: list[Callable[[str], list[LabeledImage]]] = [
    lambda name: read("coco", coco(images=[{"id": 1, "file_name": name}])),
    lambda name: read("csv", {"a.csv": f'image,class\n"{name}",cat\n'.encode()}),
    lambda name: read("label-studio", {"t.json": json.dumps([{"data": {"image": name}}]).encode()}),
    lambda name: read("platform", {"annotations.json": json.dumps({"images": [{"file_name": name}]}).encode()}),
]


def test_names_of_classes_and_splits_stay_inside(tmp_path: Path) -> None:
    collection = wd.collection("a/pets", store=link(memory("inside")))
    with collection.changes("draw") as change:
        for number, name in enumerate(("../up", "/etc", "a/b", "..", "CON", "x\ny", "=cmd()")):
            data = image_bytes(LabeledImage(f"{number}.png", width=4 + number, height=4))
            boxes: list[Annotation] = [wd.Label(name), wd.Box(name, 1, 1, 2, 2)]
            change.add(f"{number}.png", data, annotations=boxes, split=name)
    for name in ("coco", "yolo", "voc", "cvat", "label-studio", "datumaro", "masks", "imagefolder", "csv", "parquet"):
        target = tmp_path / name / "out"
        collection.export_labels(target, name)
        found = [path for path in (tmp_path / name).rglob("*") if path.is_file()]
        assert found
        assert all(path.resolve().is_relative_to(target) for path in found)
        assert sum(path.suffix == ".png" and "Segmentation" not in str(path) for path in found) == 7
    assert {path.name for path in tmp_path.iterdir()} >= {"coco", "yolo"}
