"""The methods of `Dataset` that create, describe and drop indexes. Each change is one commit."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Self

from warpdata.jobs import EngineChoice, JobOptions
from warpdata.kinds import VersionContext
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.progress import Progress, silent

if TYPE_CHECKING:
    from warpdata.indexing import IndexChange, IndexStatus

__all__ = ["IndexAccess"]


@check_arguments
class IndexAccess:
    """Indexes of a version."""

    @property
    @abstractmethod
    def context(self) -> VersionContext: ...
    @abstractmethod
    def _target_branch(self, branch: str | None) -> str: ...
    @abstractmethod
    def _at_branch(self, branch: str) -> Self: ...

    def indexes(self) -> list[IndexStatus]:
        """Describe the indexes of this version, with the rows that they cover. Reads their directories."""
        from warpdata.indexing import index_statuses

        return index_statuses(self.context)

    def create_index(
        self,
        table: str,
        column: str,
        kind: str | None = None,
        name: str | None = None,
        *,
        metric: str | None = None,
        lists: int | None = None,
        branch: str | None = None,
        message: str = "",
        author: str | None = None,
        progress: Progress = silent,
        engine: EngineChoice = None,
        job: str | None = None,
    ) -> Self:
        """Index a column as a commit, and open the result. Filters on the column then read fewer bytes.

        The kind is "bitmap" or "btree"; without one it is "bitmap" for lists and columns of up to 1,000 values. "ivf"
        makes searches of vectors by this `metric` faster ("cosine" by default), with `lists` lists in each segment.
        "imi" and "lsh" do so for "cosine" alone: "imi" has many small lists, and "lsh" needs no training and no faiss.
        "text" is for searches of words. A build that was interrupted goes on where it ended.

        With an `engine` ("processes", "ray" or "ray://HOST:PORT"), workers build the segments. The index is the same.
        A `job` that was named is committed at most once.
        """
        from warpdata.indexing import IndexRequest, create_index

        change = self._index_change(branch, message, author, progress, JobOptions(engine, job))
        given = {"metric": metric, "lists": lists}
        parameters = {key: value for key, value in given.items() if value is not None}
        create_index(self.context, IndexRequest(table, column, kind, name, parameters), change)
        return self._at_branch(change.branch)

    def update_index(
        self,
        name: str,
        *,
        rebuild: bool = False,
        branch: str | None = None,
        message: str = "",
        author: str | None = None,
        progress: Progress = silent,
        engine: EngineChoice = None,
        job: str | None = None,
    ) -> Self:
        """Cover new rows by an index as a commit, and open the result. Without new rows nothing is committed.

        With `rebuild`, all of it is built again, and damaged parts are replaced in the store. `engine` and `job` are
        those of `create_index`.
        """
        from warpdata.indexing import update_index

        change = self._index_change(branch, message, author, progress, JobOptions(engine, job))
        update_index(self.context, name, change, rebuild=rebuild)
        return self._at_branch(change.branch)

    def drop_index(self, name: str, *, branch: str | None = None, message: str = "", author: str | None = None) -> Self:
        """Drop an index as a commit, and open the result. Older versions keep it."""
        from warpdata.indexing import drop_index

        change = self._index_change(branch, message, author, silent, JobOptions())
        drop_index(self.context, name, change)
        return self._at_branch(change.branch)

    def _index_change(
        self, branch: str | None, message: str, author: str | None, progress: Progress, work: JobOptions
    ) -> IndexChange:
        from warpdata.indexing import IndexChange

        author = author or self.context.session.settings.author
        return IndexChange(self._target_branch(branch), author, message, progress, work)
