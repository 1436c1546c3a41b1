"""Tensor sets and views: named tensors, read in any part without the rest. Needs NumPy; devices need torch.

docs/specs/tensors.md is the normative text, docs/reference/tensors.md the reference of these names.
"""

from warpdata.errors import PartialCoverageDetail
from warpdata.formats.tensors.dtypes import TensorDType
from warpdata.formats.tensors.extents import Extent
from warpdata.formats.tensors.hashing import (
    artifact_id,
    leaf_size,
    logical_layout_hash,
    multihash,
    selection_hash,
    tree_hash,
    tree_root,
    view_id,
    view_subset_hash,
)
from warpdata.formats.tensors.index import TensorEntry, TensorIndex, encode_index, pack_index, parse_index
from warpdata.formats.tensors.multi_buffer import Deferred
from warpdata.formats.tensors.peer_server import ServerLimits, ServerStats, TensorServer, serve_tensors
from warpdata.formats.tensors.plan import Contiguous, Pad, Permute, Strided, ViewPlan, make_plan
from warpdata.formats.tensors.reads import Choice, ReadCost, ViewExplanation
from warpdata.formats.tensors.replica import CanonicalBytes
from warpdata.formats.tensors.shards import FileShards, StoreShards, cut_shards
from warpdata.formats.tensors.source_health import SourceStats
from warpdata.formats.tensors.source_selection import SourcePolicy
from warpdata.formats.tensors.spec import Crop, Narrow, NormalView, Transpose, crop, narrow, normalize, transpose
from warpdata.formats.tensors.statistics import TensorDifference, TensorStatistics, compare_tensors, describe_tensor
from warpdata.formats.tensors.tensor_file import encode_tail
from warpdata.formats.tensors.tensor_set import TensorSet, open_arrays, open_shards, open_sources, open_tensors
from warpdata.formats.tensors.transfer import Engine
from warpdata.formats.tensors.verify import CorruptRange
from warpdata.formats.tensors.view import Materialized, Tensor, View
from warpdata.formats.tensors.writer import TensorWriter, create_tensors, write_tensors
from warpdata.storage import FileRangeSource, ObjectRangeSource, RangeSource

__all__ = [
    "CanonicalBytes",
    "Choice",
    "Contiguous",
    "CorruptRange",
    "Crop",
    "Deferred",
    "Engine",
    "Extent",
    "FileRangeSource",
    "FileShards",
    "Materialized",
    "Narrow",
    "NormalView",
    "ObjectRangeSource",
    "Pad",
    "PartialCoverageDetail",
    "Permute",
    "RangeSource",
    "ReadCost",
    "ServerLimits",
    "ServerStats",
    "SourcePolicy",
    "SourceStats",
    "StoreShards",
    "Strided",
    "Tensor",
    "TensorDType",
    "TensorDifference",
    "TensorEntry",
    "TensorIndex",
    "TensorServer",
    "TensorSet",
    "TensorStatistics",
    "TensorWriter",
    "Transpose",
    "View",
    "ViewExplanation",
    "ViewPlan",
    "artifact_id",
    "compare_tensors",
    "create_tensors",
    "crop",
    "cut_shards",
    "describe_tensor",
    "encode_index",
    "encode_tail",
    "leaf_size",
    "logical_layout_hash",
    "make_plan",
    "multihash",
    "narrow",
    "normalize",
    "open_arrays",
    "open_shards",
    "open_sources",
    "open_tensors",
    "pack_index",
    "parse_index",
    "selection_hash",
    "serve_tensors",
    "transpose",
    "tree_hash",
    "tree_root",
    "view_id",
    "view_subset_hash",
    "write_tensors",
]
