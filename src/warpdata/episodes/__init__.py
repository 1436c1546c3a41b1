"""Episodes: WShard files as blobs, an index that opens them without a request, windows of steps for training.

Handed manifest entries and a `Reader`; knows nothing of catalogs. docs/specs/episodes.md is the normative
text. Reading needs the extra `warpdata[wshard]`.
"""

from warpdata.episodes.description import Described, describe_episode
from warpdata.episodes.entry import EpisodesEntry
from warpdata.episodes.episodes import Episodes
from warpdata.episodes.index import IndexedEpisode, write_index
from warpdata.episodes.joining import join_described
from warpdata.episodes.library import Library, Origin
from warpdata.episodes.spec import Keys, Pad
from warpdata.episodes.stored import StoredEpisode

__all__ = [
    "Described",
    "Episodes",
    "EpisodesEntry",
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
