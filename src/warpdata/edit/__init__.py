"""Edits of a dataset: rows, columns, files and episodes change, and one commit makes the next version.

docs/specs/publish.md is the normative text.
"""

from warpdata.edit.branch_compaction import Compacted, CompactionTerms, compact_branch, plan_compaction
from warpdata.edit.branch_merge import MergePlan, MergeRequest, merge_branch, plan_merge
from warpdata.edit.compaction import CompactionOptions
from warpdata.edit.edit import Edit, EditOptions, EditSummary, NewColumns, transaction_of
from warpdata.edit.proposal import EditProposal, commit_change
from warpdata.edit.sample_diff import SampleChange, SampleDiff
from warpdata.edit.table_merge import MergeConflict
from warpdata.edit.version_merge import MergePolicy
from warpdata.edit.workspace import DraftSource, EditWorkspace

__all__ = [
    "Compacted",
    "CompactionOptions",
    "CompactionTerms",
    "DraftSource",
    "Edit",
    "EditOptions",
    "EditProposal",
    "EditSummary",
    "EditWorkspace",
    "MergeConflict",
    "MergePlan",
    "MergePolicy",
    "MergeRequest",
    "NewColumns",
    "SampleChange",
    "SampleDiff",
    "commit_change",
    "compact_branch",
    "merge_branch",
    "plan_compaction",
    "plan_merge",
    "transaction_of",
]
