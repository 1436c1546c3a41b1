"""Collections: labelled files with a HEAD, versions, training snapshots, and purges with proof.

A domain without SQL or HTTP, over a directory or a bucket. docs/specs/collections.md is the normative text.
"""

from warpdata.collections.annotations import Annotation, Box, Keypoints, Label, Mask, Polygon
from warpdata.collections.changes import Changes, StoredFile
from warpdata.collections.collection import Collection
from warpdata.collections.functions import collection, create_collection
from warpdata.collections.impact import AffectedVersion, Impact
from warpdata.collections.integrity import IntegrityReport
from warpdata.collections.object_diff import ImageChange, ObjectChange, ObjectDiff, diff_objects
from warpdata.collections.platform_format import annotation_members, parse_annotation, read_annotations
from warpdata.collections.purge import PURGE_STEPS, ErasureReceipt, PurgeOptions, PurgeRequest
from warpdata.collections.records import PurgeIntent
from warpdata.collections.repair import RepairReport
from warpdata.collections.states import VersionState
from warpdata.collections.statistics import ClassStatistics, CollectionStatistics, Comparison
from warpdata.collections.tables import FILES, check_collection, is_collection
from warpdata.collections.training import TrainingJob
from warpdata.collections.upload import UploadReceipt
from warpdata.collections.versions import HEAD, CollectionVersion

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
    "IntegrityReport",
    "Keypoints",
    "Label",
    "Mask",
    "ObjectChange",
    "ObjectDiff",
    "Polygon",
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
    "parse_annotation",
    "read_annotations",
]
