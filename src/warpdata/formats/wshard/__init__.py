"""WShard: one episode in one file. A file format that stands alone: it knows nothing of datasets or stores.

docs/specs/wshard.md is the normative text. Needs the extra `warpdata[wshard]`.
"""

from warpdata.formats.wshard.block_type import Meaning
from warpdata.formats.wshard.byte_source import ByteSource, HeadedSource
from warpdata.formats.wshard.chunk_join import (
    JoinedBlock,
    JoinedFile,
    cut_rows,
    join_episodes,
    join_metadata,
    joined_identity,
)
from warpdata.formats.wshard.chunked import (
    ChunkedEpisodeWriter,
    ChunkEntry,
    ChunkManifest,
    is_chunk_manifest,
    load_chunk_manifest,
)
from warpdata.formats.wshard.codecs import Codec
from warpdata.formats.wshard.continuity import validate_chunk_continuity
from warpdata.formats.wshard.dtypes import Array, DType
from warpdata.formats.wshard.frames import FrameIndex, frames_block
from warpdata.formats.wshard.identity import identity
from warpdata.formats.wshard.load import load_wshard
from warpdata.formats.wshard.metadata import ChannelSpec, EpisodeInfo
from warpdata.formats.wshard.model import Block, Channel, ChunkPlace, Episode, Origin, Timebase
from warpdata.formats.wshard.reader import BlockReader, WShardFile, open_wshard
from warpdata.formats.wshard.recovery import Recovery, recover
from warpdata.formats.wshard.residual import pack_residual, unpack_residual
from warpdata.formats.wshard.row_source import RowSource, compose_wshard
from warpdata.formats.wshard.save import save_wshard
from warpdata.formats.wshard.stream_writer import WShardStreamWriter
from warpdata.formats.wshard.video import FrameReader, index_film, index_pictures

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
