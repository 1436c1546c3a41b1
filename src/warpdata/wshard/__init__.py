"""WShard: one episode in one file. A file format that stands alone: it knows nothing of datasets or stores.

docs/specs/wshard.md is the normative text. Needs the extra `warpdata[wshard]`.
"""

from warpdata.wshard.assembly import Recovery, recover
from warpdata.wshard.chunked import (
    ChunkedEpisodeWriter,
    ChunkEntry,
    ChunkManifest,
    is_chunk_manifest,
    load_chunk_manifest,
)
from warpdata.wshard.codecs import Codec
from warpdata.wshard.composing import RowSource, compose_wshard
from warpdata.wshard.continuity import validate_chunk_continuity
from warpdata.wshard.dtypes import Array, DType
from warpdata.wshard.films import FrameReader, index_film, index_pictures
from warpdata.wshard.frames import FrameIndex, frames_block
from warpdata.wshard.joining import (
    JoinedBlock,
    JoinedFile,
    cut_rows,
    join_episodes,
    join_metadata,
    joined_identity,
)
from warpdata.wshard.loading import load_wshard
from warpdata.wshard.meaning import Meaning
from warpdata.wshard.metadata import ChannelSpec, EpisodeInfo
from warpdata.wshard.model import Block, Channel, ChunkPlace, Episode, Origin, Timebase
from warpdata.wshard.reading import BlockReader, WShardFile, open_wshard
from warpdata.wshard.residual import pack_residual, unpack_residual
from warpdata.wshard.saving import save_wshard
from warpdata.wshard.sealing import identity
from warpdata.wshard.sources import ByteSource, HeadedSource
from warpdata.wshard.streaming import WShardStreamWriter

__all__ = [
    "Array",
    "Block",
    "BlockReader",
    "ByteSource",
    "Channel",
    "ChannelSpec",
    "ChunkEntry",
    "ChunkManifest",
    "ChunkPlace",
    "ChunkedEpisodeWriter",
    "Codec",
    "DType",
    "Episode",
    "EpisodeInfo",
    "FrameIndex",
    "FrameReader",
    "HeadedSource",
    "JoinedBlock",
    "JoinedFile",
    "Meaning",
    "Origin",
    "Recovery",
    "RowSource",
    "Timebase",
    "WShardFile",
    "WShardStreamWriter",
    "compose_wshard",
    "cut_rows",
    "frames_block",
    "identity",
    "index_film",
    "index_pictures",
    "is_chunk_manifest",
    "join_episodes",
    "join_metadata",
    "joined_identity",
    "load_chunk_manifest",
    "load_wshard",
    "open_wshard",
    "pack_residual",
    "recover",
    "save_wshard",
    "unpack_residual",
    "validate_chunk_continuity",
]
