"""Labels of images: annotations, and the formats that other tools read and write. Pure: no versions, no store."""

from warpdata.formats.labels.annotations import (
    KINDS,
    Annotation,
    Box,
    Keypoints,
    Label,
    Mask,
    Polygon,
    Polyline,
    annotation_of,
    box_of,
    geometry_columns,
)
from warpdata.formats.labels.coco import coco_document
from warpdata.formats.labels.columns import LabelBlock, LabelBlocks, blocks_of, geometry_schema
from warpdata.formats.labels.conservation import Conservation, ConservationItem, ConservationReport
from warpdata.formats.labels.cvat_manifest import cvat_manifest
from warpdata.formats.labels.cvat_reader import cvat_images
from warpdata.formats.labels.files import (
    DirectoryFiles,
    ImagePlace,
    LabelFile,
    LabelFiles,
    MemoryFiles,
    OutputFile,
    image_names,
)
from warpdata.formats.labels.formats import LABEL_FORMATS, LabelFormat, label_format
from warpdata.formats.labels.geometry import area_of, bounds_of, box_iou, is_same_drawing
from warpdata.formats.labels.image_path import check_image_path
from warpdata.formats.labels.label_studio import (
    decode_decimals,
    label_config,
    label_studio_result,
    label_studio_task,
    parse_task,
)
from warpdata.formats.labels.label_studio_results import has_region
from warpdata.formats.labels.model import LabelClass, LabeledImage, LabelSet, measure
from warpdata.formats.labels.options import LabelOptions
from warpdata.formats.labels.platform import PLATFORM_VERSIONS, annotation_members
from warpdata.formats.labels.platform_reader import PlatformDocument, parse_annotation, parse_annotations
from warpdata.formats.labels.yolo import YoloLayout, yolo_data, yolo_labels

__all__ = [
    "KINDS",
    "LABEL_FORMATS",
    "PLATFORM_VERSIONS",
    "Annotation",
    "Box",
    "Conservation",
    "ConservationItem",
    "ConservationReport",
    "DirectoryFiles",
    "ImagePlace",
    "Keypoints",
    "Label",
    "LabelBlock",
    "LabelBlocks",
    "LabelClass",
    "LabelFile",
    "LabelFiles",
    "LabelFormat",
    "LabelOptions",
    "LabelSet",
    "LabeledImage",
    "Mask",
    "MemoryFiles",
    "OutputFile",
    "PlatformDocument",
    "Polygon",
    "Polyline",
    "YoloLayout",
    "annotation_members",
    "annotation_of",
    "area_of",
    "blocks_of",
    "bounds_of",
    "box_iou",
    "box_of",
    "check_image_path",
    "coco_document",
    "cvat_images",
    "cvat_manifest",
    "decode_decimals",
    "geometry_columns",
    "geometry_schema",
    "has_region",
    "image_names",
    "is_same_drawing",
    "label_config",
    "label_format",
    "label_studio_result",
    "label_studio_task",
    "measure",
    "parse_annotation",
    "parse_annotations",
    "parse_task",
    "yolo_data",
    "yolo_labels",
]
