"""How a new version appears: builder, plan, upload, commit, verification.

docs/specs/publish.md is the normative text.
"""

from warpdata.primitives.progress import Progress, ProgressEvent, silent
from warpdata.publish.builder import DatasetBuilder, Published
from warpdata.publish.manifest_builder import Layout, lay_out
from warpdata.publish.plan import PlannedFile, PublishPlan
from warpdata.publish.tables import TableInput
from warpdata.publish.verify import Verification, verify

__all__ = [
    "DatasetBuilder",
    "Layout",
    "PlannedFile",
    "Progress",
    "ProgressEvent",
    "PublishPlan",
    "Published",
    "TableInput",
    "Verification",
    "lay_out",
    "silent",
    "verify",
]
