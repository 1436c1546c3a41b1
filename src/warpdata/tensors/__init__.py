"""Tensors and views: slices of any artifact, read without the rest. Needs numpy and nothing else of ours.

docs/specs/tensors.md is the normative text, docs/reference/tensors.md the guide to these names.
"""

from warpdata.errors import PartialCoverageDetail
from warpdata.tensors.artifact import Tensors, open_arrays, open_shards, open_sources, open_tensors
from warpdata.tensors.canonical_files import encode_tail
from warpdata.tensors.damage import Damage
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
    tree_root,
    view_id,
    view_subset_hash,
)
from warpdata.tensors.index import TensorEntry, TensorIndex, pack_index
from warpdata.tensors.index_json import encode_index, parse_index
from warpdata.tensors.plan import Contiguous, Pad, Permute, Strided, ViewPlan, make_plan
from warpdata.tensors.policy import SourcePolicy
from warpdata.tensors.reads import Choice, ReadCost
from warpdata.tensors.replica import CanonicalBytes
from warpdata.tensors.serving import TensorServer, serve_tensors
from warpdata.tensors.shards import FileShards, StoreShards, cut_shards
from warpdata.tensors.sources import ByteSource, FileSource, RangeReader, StoreSource
from warpdata.tensors.spec import Crop, Narrow, NormalView, Transpose, crop, narrow, normalize, transpose
from warpdata.tensors.tensor import Tensor
from warpdata.tensors.view import Explanation, Materialized, View

__all__ = [
    "ByteSource",
    "CanonicalBytes",
    "Choice",
    "Contiguous",
    "Crop",
    "DType",
    "Damage",
    "Deferred",
    "DraftTensors",
    "Engine",
    "Explanation",
    "Extent",
    "FileShards",
    "FileSource",
    "Materialized",
    "Narrow",
    "NormalView",
    "Pad",
    "PartialCoverageDetail",
    "Permute",
    "RangeReader",
    "ReadCost",
    "SourcePolicy",
    "StoreShards",
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
    "cut_shards",
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
