"""Collections: labelled files with a HEAD, versions, training snapshots, and purges with proof.

A domain without SQL or HTTP, over a directory or a bucket. docs/specs/collections.md is the normative text.
"""

from warpdata.collections.changes import Changes, StoredFile
from warpdata.collections.collection import Collection
from warpdata.collections.distributions import (
    AREA_SHARES,
    HEAT_CELLS,
    ClassCounts,
    CountBin,
    LabelDistributions,
    PlacedObjects,
    ShapeBin,
    describe_labels,
    place_objects,
)
from warpdata.collections.functions import collection, create_collection
from warpdata.collections.impact import AffectedVersion, Impact
from warpdata.collections.inbox import LabelInbox
from warpdata.collections.inbox_files import InboxEntry, InboxFile, InboxFiles, InboxSource
from warpdata.collections.inbox_items import (
    INBOX_STATES,
    InboxChoice,
    InboxItem,
    InboxOutcome,
    InboxReview,
    InboxSync,
)
from warpdata.collections.integrity import IntegrityReport
from warpdata.collections.label_export import LabelExport, LabelExportRequest, export_labels
from warpdata.collections.label_import import LabelImport
from warpdata.collections.label_quality import QUALITY_CHECKS, LabelQuality, QualityOptions, check_quality
from warpdata.collections.label_tasks import TaskChanges, task_changes
from warpdata.collections.object_diff import ImageChange, ObjectChange, ObjectDiff, diff_objects
from warpdata.collections.object_merge import ObjectConflict, ObjectMerge, match_objects, merge_objects
from warpdata.collections.platform_format import read_annotations
from warpdata.collections.purge import PURGE_STEPS, ErasureReceipt, PurgeOptions, PurgeRequest
from warpdata.collections.records import PurgeIntent
from warpdata.collections.repair import RepairReport
from warpdata.collections.returned_labels import ReturnedLabel, parse_returned
from warpdata.collections.states import VersionState
from warpdata.collections.statistics import ClassStatistics, CollectionStatistics, Comparison
from warpdata.collections.stored_labels import annotations_of, find_images, label_set
from warpdata.collections.tables import FILES, check_collection, is_collection, quoted_lists
from warpdata.collections.training import TrainingJob, store_variables
from warpdata.collections.upload import UploadReceipt
from warpdata.collections.versions import HEAD, CollectionVersion
from warpdata.formats.labels import (
    Annotation,
    Box,
    Keypoints,
    Label,
    Mask,
    Polygon,
    Polyline,
    annotation_members,
    parse_annotation,
)

__all__ = [
    "AREA_SHARES",
    "FILES",
    "HEAD",
    "HEAT_CELLS",
    "INBOX_STATES",
    "PURGE_STEPS",
    "QUALITY_CHECKS",
    "AffectedVersion",
    "Annotation",
    "Box",
    "Changes",
    "ClassCounts",
    "ClassStatistics",
    "Collection",
    "CollectionStatistics",
    "CollectionVersion",
    "Comparison",
    "CountBin",
    "ErasureReceipt",
    "ImageChange",
    "Impact",
    "InboxChoice",
    "InboxEntry",
    "InboxFile",
    "InboxFiles",
    "InboxItem",
    "InboxOutcome",
    "InboxReview",
    "InboxSource",
    "InboxSync",
    "IntegrityReport",
    "Keypoints",
    "Label",
    "LabelDistributions",
    "LabelExport",
    "LabelExportRequest",
    "LabelImport",
    "LabelInbox",
    "LabelQuality",
    "Mask",
    "ObjectChange",
    "ObjectConflict",
    "ObjectDiff",
    "ObjectMerge",
    "PlacedObjects",
    "Polygon",
    "Polyline",
    "PurgeIntent",
    "PurgeOptions",
    "PurgeRequest",
    "QualityOptions",
    "RepairReport",
    "ReturnedLabel",
    "ShapeBin",
    "StoredFile",
    "TaskChanges",
    "TrainingJob",
    "UploadReceipt",
    "VersionState",
    "annotation_members",
    "annotations_of",
    "check_collection",
    "check_quality",
    "collection",
    "create_collection",
    "describe_labels",
    "diff_objects",
    "export_labels",
    "find_images",
    "is_collection",
    "label_set",
    "match_objects",
    "merge_objects",
    "parse_annotation",
    "parse_returned",
    "place_objects",
    "quoted_lists",
    "read_annotations",
    "store_variables",
    "task_changes",
]
