"""Episodes found by what was observed in them: files stay where they are, and an index has a vector of each.

The index is a dataset with tables of vectors, or a DeepData server. Needs the extra `wshard`.
"""

from warpdata.trajectories.trajectories import EpisodeRef, TrajectoryIngestor, TrajectoryRetriever

__all__ = ["EpisodeRef", "TrajectoryIngestor", "TrajectoryRetriever"]
