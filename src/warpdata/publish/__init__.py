"""Publishing: builder, plan, upload, commit and verification of a version.

docs/specs/publish.md is the normative text.
"""

from warpdata.kinds.tables import TableInput
from warpdata.primitives.progress import Progress, ProgressEvent, silent
from warpdata.publish.builder import DatasetBuilder, Published
from warpdata.publish.upload import PlannedFile, PublishPlan
from warpdata.publish.verify import Verification, verify

__all__ = [
    "DatasetBuilder",
    "PlannedFile",
    "Progress",
    "ProgressEvent",
    "PublishPlan",
    "Published",
    "TableInput",
    "Verification",
    "silent",
    "verify",
]
