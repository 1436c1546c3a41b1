"""Read a directory of labels with another library, and print what it found as JSON.

Runs in `.venv-labels`, where warpdata is not installed: python readers.py READER DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Found = list[tuple[str, str, list[float]]]
"""Name of the image, class, and box as x, y, width and height."""


def pycocotools(top: Path) -> Found:
    """Read boxes, and replace those of segmentations by the bounds and the area of the decoded mask."""
    from pycocotools import mask as masks
    from pycocotools.coco import COCO

    found: Found = []
    for path in sorted((top / "annotations").glob("*.json")):
        coco = COCO(str(path))
        for one in coco.loadAnns(coco.getAnnIds()):
            image = coco.loadImgs(one["image_id"])[0]
            name = coco.loadCats(one["category_id"])[0]["name"]
            box = one["bbox"]
            if isinstance(one.get("segmentation"), dict):
                rle = coco.annToRLE(one)
                box = [*masks.toBbox(rle).tolist(), float(masks.area(rle))]
            found.append((image["file_name"], name, box))
    return found


def labelformat_coco(top: Path) -> Found:
    from labelformat.formats import COCOObjectDetectionInput

    return [
        one
        for path in sorted((top / "annotations").glob("*.json"))
        for one in _labelformat(COCOObjectDetectionInput(input_file=path))
    ]


def labelformat_yolo(top: Path) -> Found:
    from labelformat.formats import YOLOv8ObjectDetectionInput

    return [
        one
        for split in ("train", "val")
        for one in _labelformat(YOLOv8ObjectDetectionInput(input_file=top / "data.yaml", input_split=split))
    ]


def labelformat_voc(top: Path) -> Found:
    from labelformat.formats import PascalVOCObjectDetectionInput

    reader = PascalVOCObjectDetectionInput(input_folder=top / "Annotations", category_names="cat,dog")
    return _labelformat(reader)


def _labelformat(reader: Any) -> Found:
    found: Found = []
    for label in reader.get_labels():
        for one in label.objects:
            box = one.box
            found.append(
                (
                    label.image.filename,
                    one.category.name,
                    [box.xmin, box.ymin, box.xmax - box.xmin, box.ymax - box.ymin],
                )
            )
    return found


def ultralytics(top: Path) -> Found:
    """Check the dataset, then read it as training does."""
    from ultralytics.data.dataset import YOLODataset
    from ultralytics.data.utils import check_det_dataset

    data = check_det_dataset(str(top / "data.yaml"), autodownload=False)
    kinds = {"segment": top.name == "yolo-segment", "pose": top.name == "yolo-pose", "obb": top.name == "yolo-obb"}
    task = next((name for name, is_task in kinds.items() if is_task), "detect")
    found: Found = []
    for split in ("train", "val"):
        dataset = YOLODataset(img_path=data[split], data=data, task=task, augment=False, imgsz=64)
        for label in dataset.labels:
            height, width = label["shape"]
            for number, (cx, cy, w, h) in zip(label["cls"].ravel().tolist(), label["bboxes"].tolist(), strict=True):
                box = [(cx - w / 2) * width, (cy - h / 2) * height, w * width, h * height]
                found.append((Path(label["im_file"]).name, data["names"][int(number)], box))
    return found


def datumaro(top: Path) -> Found:
    """Read a format of Datumaro. COCO gives it a box beside each segmentation, which is left out."""
    import datumaro as dm

    if top.name == "cvat":  # Datumaro takes the name of the file for the subset
        for split in ("train", "val"):
            (top / f"{split}.xml").write_bytes((top / "annotations.xml").read_bytes())
        (top / "annotations.xml").unlink()
    kinds = {"voc": "voc_detection", "masks": "voc_segmentation"}
    dataset = dm.Dataset.import_from(str(top), kinds.get(top.name, top.name))
    names = [one.name for one in dataset.categories()[dm.AnnotationType.label]]
    found: Found = []
    for item in dataset:
        drawn = {one.id for one in item.annotations if one.type != dm.AnnotationType.bbox}
        for one in item.annotations:
            if top.name == "coco" and one.type == dm.AnnotationType.bbox and one.id in drawn:
                continue
            box = list(one.get_bbox()) if hasattr(one, "get_bbox") else []
            if one.type == dm.AnnotationType.mask:
                box = [*box, float(one.get_area())]
            found.append((f"{item.id}.png", names[one.label], [float(value) for value in box]))
    return found


def label_studio(top: Path) -> Found:
    """Convert tasks to COCO with the library of Label Studio."""
    from label_studio_sdk.converter import Converter

    out = top / "converted"
    config = """<View><Image name="image" value="$image"/>
      <RectangleLabels name="box" toName="image"><Label value="cat"/><Label value="dog"/></RectangleLabels>
      <PolygonLabels name="polygon" toName="image"><Label value="cat"/><Label value="dog"/></PolygonLabels></View>"""
    converter = Converter(config=config, project_dir=str(top), download_resources=False)
    converter.convert_to_coco(str(top / "tasks.json"), str(out), output_image_dir=str(out), is_dir=False)
    body = json.loads((out / "result.json").read_text())
    names = {one["id"]: one["name"] for one in body["categories"]}
    images = {one["id"]: Path(one["file_name"]).name for one in body["images"]}
    return [(images[one["image_id"]], names[one["category_id"]], one["bbox"]) for one in body["annotations"]]


READERS = {
    "pycocotools": pycocotools,
    "labelformat_coco": labelformat_coco,
    "labelformat_yolo": labelformat_yolo,
    "labelformat_voc": labelformat_voc,
    "ultralytics": ultralytics,
    "datumaro": datumaro,
    "label_studio": label_studio,
}

if __name__ == "__main__":
    result = READERS[sys.argv[1]](Path(sys.argv[2]))
    print("\n" + json.dumps(result))
