"""Methods of `Dataset` whose work a cluster can do: compaction, and rows for Ray Data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from warpdata.jobs import EngineChoice, JobOptions
from warpdata.kinds import VersionContext
from warpdata.kinds.tables import SchemaTransform, Table
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.progress import Progress, silent
from warpdata.primitives.sizes import parse_size
from warpdata.query import Filter
from warpdata.repository.catalog import Transaction

if TYPE_CHECKING:
    from warpdata.datasets.dataset import Dataset
    from warpdata.datasets.ray_source import References
    from warpdata.edit import Compacted
    from warpdata.streaming import RowKeywords

__all__ = ["ClusterAccess"]


@check_arguments
class ClusterAccess:
    """Work over all rows of a version."""

    @property
    @abstractmethod
    def context(self) -> VersionContext: ...
    @abstractmethod
    def _target_branch(self, branch: str | None) -> str: ...
    @abstractmethod
    def _ref_transform(self, table: str) -> SchemaTransform | None: ...

    def compact(
        self,
        tables: Sequence[str] | None = None,
        *,
        target_bytes: int | str = "256MiB",
        max_deleted: float = 0.1,
        branch: str | None = None,
        author: str | None = None,
        progress: Progress = silent,
        engine: EngineChoice = None,
        job: str | None = None,
    ) -> Compacted:
        """Rewrite shards of this branch that are small, or of which more than a part is deleted. Rows and ids stay.

        With an `engine` ("processes", "ray" or "ray://HOST:PORT"), workers write them. An interrupted `job` goes on.
        """
        from warpdata.edit import CompactionOptions, CompactionTerms, compact_branch

        session, ref, target = self.context.session, self.context.ref, self._target_branch(branch)
        author, time = author or session.settings.author, session.timestamp()
        txn = Transaction(ref.dataset_id, target, session.new_id(), "compact", author, "compact", time)
        options = CompactionOptions(parse_size(target_bytes), max_deleted)
        return compact_branch(
            session, txn, tables, CompactionTerms(options, progress, JobOptions(engine, job)), self._ref_transform
        )

    def to_ray(
        self,
        table: str | Table | None = None,
        *,
        columns: Sequence[str] | str | None = None,
        filter: str | Filter | None = None,  # noqa: A002 - as in stream
        references: References = "bytes",
        blocks: int | None = None,
    ) -> Any:
        """Return the rows as a `ray.data.Dataset`. Workers read them; nothing passes through this process.

        `columns` and `filter` select as in `stream`. Columns of references have the bytes of their files, or with
        `references="stored"` the stored values. `blocks` is the number of read tasks; by default Ray chooses it.
        """
        from warpdata.datasets.ray_source import to_ray
        from warpdata.datasets.streaming import StreamRequest

        selected: RowKeywords = {"filter": filter} if columns is None else {"filter": filter, "columns": columns}
        dataset = cast("Dataset", self)
        return to_ray(dataset, StreamRequest.parse(dataset, table, selected, collate="arrow"), references, blocks)
