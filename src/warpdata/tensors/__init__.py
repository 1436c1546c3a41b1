"""Tensors and views: slices of any artifact, read without the rest. Needs numpy and nothing else of ours.

docs/specs/tensors.md is the normative text, docs/reference/tensors.md the guide to these names.
"""

from warpdata.errors import PartialCoverageDetail
from warpdata.tensors.artifact import Tensors, open_sources, open_tensors
from warpdata.tensors.deferred import Deferred
from warpdata.tensors.drafts import DraftTensors, create_tensors, write_tensors
from warpdata.tensors.dtypes import DType
from warpdata.tensors.engine import Engine
from warpdata.tensors.extents import Extent
from warpdata.tensors.identity import (
    artifact_id,
    leaf_size,
    logical_layout_hash,
    multihash,
    selection_hash,
    tree_hash,
    view_id,
    view_subset_hash,
)
from warpdata.tensors.index import TensorEntry, TensorIndex, pack_index
from warpdata.tensors.index_json import encode_index, parse_index
from warpdata.tensors.plan import Contiguous, Pad, Permute, Strided, ViewPlan, make_plan
from warpdata.tensors.policy import SourcePolicy
from warpdata.tensors.reads import Choice, ReadCost
from warpdata.tensors.serving import TensorServer, serve_tensors
from warpdata.tensors.sources import ByteSource, RangeReader, StoreSource
from warpdata.tensors.spec import Crop, Narrow, NormalView, Transpose, crop, narrow, normalize, transpose
from warpdata.tensors.tensor import Tensor
from warpdata.tensors.view import Explanation, Materialized, View

__all__ = [
    "ByteSource",
    "Choice",
    "Contiguous",
    "Crop",
    "DType",
    "Deferred",
    "DraftTensors",
    "Engine",
    "Explanation",
    "Extent",
    "Materialized",
    "Narrow",
    "NormalView",
    "Pad",
    "PartialCoverageDetail",
    "Permute",
    "RangeReader",
    "ReadCost",
    "SourcePolicy",
    "StoreSource",
    "Strided",
    "Tensor",
    "TensorEntry",
    "TensorIndex",
    "TensorServer",
    "Tensors",
    "Transpose",
    "View",
    "ViewPlan",
    "artifact_id",
    "create_tensors",
    "crop",
    "encode_index",
    "leaf_size",
    "logical_layout_hash",
    "make_plan",
    "multihash",
    "narrow",
    "normalize",
    "open_sources",
    "open_tensors",
    "pack_index",
    "parse_index",
    "selection_hash",
    "serve_tensors",
    "transpose",
    "tree_hash",
    "view_id",
    "view_subset_hash",
    "write_tensors",
]
