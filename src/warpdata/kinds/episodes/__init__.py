"""Episodes: WShard files as blobs, an index that opens them without a request, windows of steps for training.

Handed manifest entries and a `Reader`; knows nothing of catalogs. docs/specs/episodes.md is the normative
text. Reading needs the extra `warpdata[wshard]`.
"""

from warpdata.kinds.episodes.chunk_join import join_described
from warpdata.kinds.episodes.description import Described, describe_episode
from warpdata.kinds.episodes.entry import EpisodesEntry
from warpdata.kinds.episodes.episode import StoredEpisode
from warpdata.kinds.episodes.episodes import Episodes
from warpdata.kinds.episodes.index import IndexedEpisode, write_index
from warpdata.kinds.episodes.index_reader import Library, Origin
from warpdata.kinds.episodes.kind import EPISODES, EpisodesInfo
from warpdata.kinds.episodes.stage import EpisodesInput, EpisodesSpec
from warpdata.kinds.episodes.window_spec import Keys, Pad

__all__ = [
    "EPISODES",
    "Described",
    "Episodes",
    "EpisodesEntry",
    "EpisodesInfo",
    "EpisodesInput",
    "EpisodesSpec",
    "IndexedEpisode",
    "Keys",
    "Library",
    "Origin",
    "Pad",
    "StoredEpisode",
    "describe_episode",
    "join_described",
    "write_index",
]
