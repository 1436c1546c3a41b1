"""Labels of images: annotations, and the formats that other tools read and write. Pure: no versions, no store."""

from warpdata.formats.labels.annotations import (
    KINDS,
    Annotation,
    Box,
    Keypoints,
    Label,
    Mask,
    Polygon,
    annotation_of,
    box_of,
    geometry_columns,
)
from warpdata.formats.labels.image_path import check_image_path

__all__ = [
    "KINDS",
    "Annotation",
    "Box",
    "Keypoints",
    "Label",
    "Mask",
    "Polygon",
    "annotation_of",
    "box_of",
    "check_image_path",
    "geometry_columns",
]
