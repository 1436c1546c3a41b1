"""Tensors and views: slices of any artifact, read without the rest. Needs numpy and nothing else of ours.

docs/specs/tensors.md is the normative text, docs/reference/tensors.md the guide to these names.
"""

from warpdata.errors import PartialCoverageDetail
from warpdata.formats.tensors.canonical_files import encode_tail
from warpdata.formats.tensors.deferred import Deferred
from warpdata.formats.tensors.dtypes import DType
from warpdata.formats.tensors.engine import Engine
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
from warpdata.formats.tensors.index import TensorEntry, TensorIndex, pack_index
from warpdata.formats.tensors.index_json import encode_index, parse_index
from warpdata.formats.tensors.plan import Contiguous, Pad, Permute, Strided, ViewPlan, make_plan
from warpdata.formats.tensors.reads import Choice, ReadCost
from warpdata.formats.tensors.replica import CanonicalBytes
from warpdata.formats.tensors.server import TensorServer, serve_tensors
from warpdata.formats.tensors.shards import FileShards, StoreShards, cut_shards
from warpdata.formats.tensors.source_selection import SourcePolicy
from warpdata.formats.tensors.sources import ByteSource, FileSource, RangeReader, StoreSource
from warpdata.formats.tensors.spec import Crop, Narrow, NormalView, Transpose, crop, narrow, normalize, transpose
from warpdata.formats.tensors.tensor import Tensor
from warpdata.formats.tensors.tensor_set import Tensors, open_arrays, open_shards, open_sources, open_tensors
from warpdata.formats.tensors.verify import Damage
from warpdata.formats.tensors.view import Explanation, Materialized, View
from warpdata.formats.tensors.writer import DraftTensors, create_tensors, write_tensors

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
