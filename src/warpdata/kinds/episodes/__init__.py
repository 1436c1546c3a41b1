"""Episode sets: WShard files as blobs, an index that opens them without a request, and windows for training.

Reads manifest entries with a `Reader`, and knows no catalog. docs/specs/episodes.md is the normative text. Reading
needs the extra `wshard`.
"""

from warpdata.kinds.episodes.camera import CameraReader
from warpdata.kinds.episodes.entry import EpisodesEntry
from warpdata.kinds.episodes.episode import StoredEpisode
from warpdata.kinds.episodes.episodes import Episodes
from warpdata.kinds.episodes.index import EpisodeIndex, EpisodesContext
from warpdata.kinds.episodes.index_writer import (
    EpisodeDescription,
    IndexedEpisode,
    describe_episode,
    join_descriptions,
    write_index,
)
from warpdata.kinds.episodes.kind import EPISODES, EpisodesInfo
from warpdata.kinds.episodes.rewards import REWARD, filter_by_reward, read_reward, total_rewards
from warpdata.kinds.episodes.similarity import Embedder, SimilarEpisode
from warpdata.kinds.episodes.stage import EpisodesInput, EpisodesSpec
from warpdata.kinds.episodes.window_spec import Keys, Pad, Resize, WindowKeywords

__all__ = [
    "EPISODES",
    "REWARD",
    "CameraReader",
    "Embedder",
    "EpisodeDescription",
    "EpisodeIndex",
    "Episodes",
    "EpisodesContext",
    "EpisodesEntry",
    "EpisodesInfo",
    "EpisodesInput",
    "EpisodesSpec",
    "IndexedEpisode",
    "Keys",
    "Pad",
    "Resize",
    "SimilarEpisode",
    "StoredEpisode",
    "WindowKeywords",
    "describe_episode",
    "filter_by_reward",
    "join_descriptions",
    "read_reward",
    "total_rewards",
    "write_index",
]
