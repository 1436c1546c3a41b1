"""If this fails, another library reads other labels from an export than those that were drawn.

The libraries are in `.venv-labels`, which `make test-labels` creates; without it these tests are skipped.
"""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import warpdata as wd
from tests.docs.pages import ROOT
from tests.faults.scenes import link, memory
from warpdata.collections import Collection
from warpdata.formats.labels import Annotation

PYTHON = ROOT / ".venv-labels" / "bin" / "python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="make test-labels installs the libraries")

MASK = np.zeros((48, 64), bool)
MASK[10:20, 30:45] = True
DRAWN: dict[str, list[Annotation]] = {
    "one.png": [wd.Box("cat", 1, 2, 30.5, 20.25), wd.Box("dog", 10, 10, 5, 6, attributes={"score": 0.5})],
    "two.png": [wd.Polygon("cat", [(4, 4), (20.5, 6), (12, 30)]), wd.Box("dog", 0, 0, 64, 48)],
    "three.png": [wd.Mask("dog", MASK)],
    "four.png": [],
}
SPLITS = {"one.png": "train", "two.png": "val", "three.png": "train", "four.png": "val"}
BOXES = {
    ("one.png", "cat"): [1, 2, 30.5, 20.25],
    ("one.png", "dog"): [10, 10, 5, 6],
    ("two.png", "cat"): [4, 4, 16.5, 26],
    ("two.png", "dog"): [0, 0, 64, 48],
    ("three.png", "dog"): [30, 10, 15, 10],
}
UPRIGHT = {key: box for key, box in BOXES.items() if key != ("three.png", "dog")}
WITH_AREA = {**BOXES, ("three.png", "dog"): [30, 10, 15, 10, 150]}


@pytest.fixture(scope="module")
def collection() -> Collection:
    made = wd.create_collection("a/pets", store=link(memory("independent")))
    with made.changes("draw") as change:
        for name, annotations in DRAWN.items():
            out = io.BytesIO()
            Image.new("RGB", (64, 48), (len(name) * 10, 20, 30)).save(out, "PNG")
            change.add(name, out.getvalue(), annotations=annotations, split=SPLITS[name])
    return made


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("reader", "format_", "task", "expected"),
    [
        ("pycocotools", "coco", None, WITH_AREA),
        ("labelformat_coco", "coco", None, BOXES),
        ("labelformat_yolo", "yolo", "detect", BOXES),
        ("labelformat_voc", "voc", None, BOXES),
        ("ultralytics", "yolo", "detect", BOXES),
        ("ultralytics", "yolo", "segment", UPRIGHT),
        ("ultralytics", "yolo", "obb", BOXES),
        ("datumaro", "coco", None, WITH_AREA),
        ("datumaro", "cvat", None, WITH_AREA),
        ("datumaro", "voc", None, BOXES),
        ("datumaro", "datumaro", None, WITH_AREA),
        ("label_studio", "label-studio", None, UPRIGHT),
    ],
)
def test_another_library_reads_the_same(
    collection: Collection,
    tmp_path: Path,
    reader: str,
    format_: str,
    task: str | None,
    expected: dict[tuple[str, str], list[float]],
) -> None:
    target = tmp_path / (format_ if task in (None, "detect") else f"{format_}-{task}")
    collection.export_labels(target, format_, task=task)
    script = Path(__file__).with_name("readers.py")
    done = subprocess.run(
        [str(PYTHON), str(script), reader, str(target)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == len(expected)
    for image, class_name, box in found:
        wanted = expected[Path(image).name, class_name]
        assert box == pytest.approx(wanted, abs=2e-3), (image, class_name)
