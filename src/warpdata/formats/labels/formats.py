"""The formats of labels by name: how each is read and written, and what of the model it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from warpdata.errors import BadInputError
from warpdata.formats.labels.class_maps import read_class_maps, write_class_maps
from warpdata.formats.labels.coco import write_coco
from warpdata.formats.labels.coco_reader import read_coco
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.cvat import write_cvat
from warpdata.formats.labels.cvat_reader import read_cvat
from warpdata.formats.labels.datumaro import read_datumaro, write_datumaro
from warpdata.formats.labels.files import LabelFiles, OutputFile
from warpdata.formats.labels.image_folder import read_image_folder, write_image_folder
from warpdata.formats.labels.label_studio import read_label_studio, write_label_studio
from warpdata.formats.labels.model import LabelSet
from warpdata.formats.labels.options import LabelOptions
from warpdata.formats.labels.platform import PLATFORM_VERSIONS, write_platform
from warpdata.formats.labels.platform_reader import read_platform
from warpdata.formats.labels.tables import read_csv, read_parquet, write_csv, write_parquet
from warpdata.formats.labels.voc import read_voc, write_voc
from warpdata.formats.labels.yolo import write_yolo
from warpdata.formats.labels.yolo_lines import TASKS
from warpdata.formats.labels.yolo_reader import read_yolo
from warpdata.primitives.suggest import suggest

__all__ = ["LABEL_FORMATS", "LabelFormat", "label_format"]


@dataclass(frozen=True, slots=True)
class LabelFormat:
    """A format. `read` returns images that can be iterated once; `write` yields files in the order of the images.

    Both keep the account, which is complete after the last image. `tasks` are the choices of `LabelOptions.task`.
    """

    name: str
    title: str
    read: Callable[[LabelFiles, Conservation, LabelOptions], LabelSet]
    write: Callable[[LabelSet, Conservation, LabelOptions], Iterator[OutputFile]]
    tasks: tuple[str, ...] = ()


_FORMATS = (
    LabelFormat(
        "coco",
        "COCO JSON: boxes, polygons, masks and keypoints",
        lambda files, account, _: read_coco(files, account),
        lambda labels, account, _: write_coco(labels, account),
    ),
    LabelFormat("yolo", "YOLO text files with data.yaml", read_yolo, write_yolo, TASKS),
    LabelFormat(
        "voc", "Pascal VOC XML: upright boxes", read_voc, lambda labels, account, _: write_voc(labels, account)
    ),
    LabelFormat("cvat", "CVAT for images 1.1 XML", read_cvat, lambda labels, account, _: write_cvat(labels, account)),
    LabelFormat(
        "label-studio",
        "Label Studio JSON: tasks with annotations",
        read_label_studio,
        lambda labels, account, _: write_label_studio(labels, account),
    ),
    LabelFormat(
        "datumaro",
        "Datumaro JSON",
        lambda files, account, _: read_datumaro(files, account),
        lambda labels, account, _: write_datumaro(labels, account),
    ),
    LabelFormat(
        "masks",
        "PNG maps of classes with a palette",
        read_class_maps,
        lambda labels, account, _: write_class_maps(labels, account),
    ),
    LabelFormat(
        "imagefolder",
        "directories of splits and classes",
        lambda files, account, _: read_image_folder(files, account),
        lambda labels, account, _: write_image_folder(labels, account),
    ),
    LabelFormat(
        "csv",
        "one row for each annotation",
        lambda files, account, _: read_csv(files, account),
        lambda labels, account, _: write_csv(labels, account),
    ),
    LabelFormat(
        "parquet",
        "one row for each annotation, with types",
        lambda files, account, _: read_parquet(files, account),
        lambda labels, account, _: write_parquet(labels, account),
    ),
    LabelFormat(
        "platform",
        "Platform Format: annotations.json",
        lambda files, account, _: read_platform(files, account),
        lambda labels, account, options: write_platform(labels, account, options.task or PLATFORM_VERSIONS[-1]),
        PLATFORM_VERSIONS,
    ),
)
LABEL_FORMATS: Mapping[str, LabelFormat] = {one.name: one for one in _FORMATS}


def label_format(name: str) -> LabelFormat:
    """Return a format by its name. `BadInputError` with similar names if there is none."""
    found = LABEL_FORMATS.get(name)
    if found is None:
        raise BadInputError(
            f"the label format {name!r} is not known", hint=suggest(name, LABEL_FORMATS, label="The formats are")
        )
    return found
