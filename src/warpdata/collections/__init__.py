"""Collections: labelled files with a HEAD, versions, training snapshots, and purges with proof.

A domain without SQL or HTTP, over a directory or a bucket. docs/specs/collections.md is the normative text.
"""

from warpdata.collections.changes import Changes, StoredFile
from warpdata.collections.collection import Collection
from warpdata.collections.functions import collection, create_collection
from warpdata.collections.impact import AffectedVersion, Impact
from warpdata.collections.inbox import Inbox, InboxEntry, InboxFile, InboxSource
from warpdata.collections.integrity import IntegrityReport
from warpdata.collections.label_export import LabelExport
from warpdata.collections.label_import import LabelImport
from warpdata.collections.object_diff import ImageChange, ObjectChange, ObjectDiff, diff_objects
from warpdata.collections.platform_format import read_annotations
from warpdata.collections.purge import PURGE_STEPS, ErasureReceipt, PurgeOptions, PurgeRequest
from warpdata.collections.records import PurgeIntent
from warpdata.collections.repair import RepairReport
from warpdata.collections.states import VersionState
from warpdata.collections.statistics import ClassStatistics, CollectionStatistics, Comparison
from warpdata.collections.stored_labels import label_set
from warpdata.collections.tables import FILES, check_collection, is_collection
from warpdata.collections.training import TrainingJob
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
    "FILES",
    "HEAD",
    "PURGE_STEPS",
    "AffectedVersion",
    "Annotation",
    "Box",
    "Changes",
    "ClassStatistics",
    "Collection",
    "CollectionStatistics",
    "CollectionVersion",
    "Comparison",
    "ErasureReceipt",
    "ImageChange",
    "Impact",
    "Inbox",
    "InboxEntry",
    "InboxFile",
    "InboxSource",
    "IntegrityReport",
    "Keypoints",
    "Label",
    "LabelExport",
    "LabelImport",
    "Mask",
    "ObjectChange",
    "ObjectDiff",
    "Polygon",
    "Polyline",
    "PurgeIntent",
    "PurgeOptions",
    "PurgeRequest",
    "RepairReport",
    "StoredFile",
    "TrainingJob",
    "UploadReceipt",
    "VersionState",
    "annotation_members",
    "check_collection",
    "collection",
    "create_collection",
    "diff_objects",
    "is_collection",
    "label_set",
    "parse_annotation",
    "read_annotations",
]
