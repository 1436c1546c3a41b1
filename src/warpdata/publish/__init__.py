"""Publishing: builder, plan, upload and commit of a version.

docs/specs/publish.md is the normative text.
"""

from warpdata.kinds.tables import TableInput
from warpdata.primitives.progress import Progress, ProgressEvent, silent
from warpdata.publish.bindings import check_cells, check_origin
from warpdata.publish.builder import DatasetBuilder, Published
from warpdata.publish.change_set import page_writes, refuse_removal
from warpdata.publish.manifest_builder import BuiltManifest, check_entry_name, layout_manifest
from warpdata.publish.placement import HeadBlobs, Placement, place_blobs
from warpdata.publish.ray_sink import write_ray
from warpdata.publish.references import carry_references
from warpdata.publish.upload import PlannedFile, PublishPlan, StagedUpload, find_present, plan_upload

__all__ = [
    "BuiltManifest",
    "DatasetBuilder",
    "HeadBlobs",
    "Placement",
    "PlannedFile",
    "Progress",
    "ProgressEvent",
    "PublishPlan",
    "Published",
    "StagedUpload",
    "TableInput",
    "carry_references",
    "check_cells",
    "check_entry_name",
    "check_origin",
    "find_present",
    "layout_manifest",
    "page_writes",
    "place_blobs",
    "plan_upload",
    "refuse_removal",
    "silent",
    "write_ray",
]
