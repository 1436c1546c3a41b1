"""WShard: one episode in one file. The format knows nothing of datasets; it needs the extra `wshard`.

docs/specs/wshard.md is the normative text.
"""

from warpdata.formats.wshard.block_type import BlockType
from warpdata.formats.wshard.chunk_check import validate_chunk_continuity
from warpdata.formats.wshard.chunk_join import JoinedBlock, JoinedFile, cut_rows, join_episodes, join_metadata
from warpdata.formats.wshard.chunk_manifest import ChunkEntry, ChunkManifest, is_chunk_manifest, load_chunk_manifest
from warpdata.formats.wshard.chunk_merge import join_chunks
from warpdata.formats.wshard.chunked import ChunkedEpisodeWriter
from warpdata.formats.wshard.codecs import Codec
from warpdata.formats.wshard.dtypes import Array, DType, pack_residual, unpack_residual
from warpdata.formats.wshard.episode_file import open_wshard
from warpdata.formats.wshard.frame_index import FrameIndex, frames_block
from warpdata.formats.wshard.identity import identity, joined_identity
from warpdata.formats.wshard.load import load_wshard
from warpdata.formats.wshard.metadata import ChannelSpec, EpisodeInfo
from warpdata.formats.wshard.model import Block, Channel, ChunkPlace, Episode, Origin, Timebase
from warpdata.formats.wshard.reader import BlockReader, WShardFile, open_file
from warpdata.formats.wshard.recovery import Recovery, recover
from warpdata.formats.wshard.save import RowSource, compose_wshard, save_wshard
from warpdata.formats.wshard.source import HeadedSource
from warpdata.formats.wshard.stream_writer import WShardStreamWriter
from warpdata.formats.wshard.video import FrameReader, index_images, index_video
from warpdata.storage import RangeSource

__all__ = [
    "Array",
    "Block",
    "BlockReader",
    "BlockType",
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
    "Origin",
    "RangeSource",
    "Recovery",
    "RowSource",
    "Timebase",
    "WShardFile",
    "WShardStreamWriter",
    "compose_wshard",
    "cut_rows",
    "frames_block",
    "identity",
    "index_images",
    "index_video",
    "is_chunk_manifest",
    "join_chunks",
    "join_episodes",
    "join_metadata",
    "joined_identity",
    "load_chunk_manifest",
    "load_wshard",
    "open_file",
    "open_wshard",
    "pack_residual",
    "recover",
    "save_wshard",
    "unpack_residual",
    "validate_chunk_continuity",
]
