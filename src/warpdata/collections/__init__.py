"""Collections: labelled files with a HEAD, versions, training snapshots, and purges with proof.

A domain without SQL or HTTP, over a directory or a bucket. docs/specs/collections.md is the normative text.
"""

from warpdata.collections.annotations import Annotation, Box, Keypoints, Label, Mask, Polygon
from warpdata.collections.changes import Changes, StoredFile
from warpdata.collections.collection import Collection
from warpdata.collections.functions import collection, create_collection
from warpdata.collections.impact import AffectedVersion, Impact
from warpdata.collections.integrity import IntegrityReport
from warpdata.collections.purge import ErasureReceipt
from warpdata.collections.states import VersionState
from warpdata.collections.statistics import ClassStatistics, CollectionStatistics, Comparison
from warpdata.collections.training import TrainingJob
from warpdata.collections.upload import UploadReceipt
from warpdata.collections.versions import HEAD, CollectionVersion

__all__ = [
    "HEAD",
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
    "Impact",
    "IntegrityReport",
    "Keypoints",
    "Label",
    "Mask",
    "Polygon",
    "StoredFile",
    "TrainingJob",
    "UploadReceipt",
    "VersionState",
    "collection",
    "create_collection",
]
