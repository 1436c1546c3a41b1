"""The searches of `Dataset`: methods over the layer that does the work."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError
from warpdata.kinds import VersionContext
from warpdata.kinds.tables import Table
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.progress import Progress, silent
from warpdata.query import Filter
from warpdata.storage import IOStats

if TYPE_CHECKING:
    import pyarrow as pa

    from warpdata.datasets.dataset import Dataset
    from warpdata.edit import Edit
    from warpdata.search import Hits, ImageClause, NearClause, Projection, SearchIndexes, Vector

__all__ = ["DatasetSearch"]


@check_arguments
class DatasetSearch:
    """Search by vectors and by words."""

    @abstractmethod
    def table(self, name: str | None = None) -> Table: ...
    @property
    @abstractmethod
    def context(self) -> VersionContext: ...
    @property
    @abstractmethod
    def io_stats(self) -> IOStats: ...
    @abstractmethod
    def edit(self, message: str = "", *, branch: str | None = None) -> Edit: ...
    @abstractmethod
    def _target_branch(self, branch: str | None) -> str: ...
    @abstractmethod
    def _at_branch(self, branch: str) -> Dataset: ...

    @cached_property
    def _search_indexes(self) -> SearchIndexes:
        from warpdata.search import SearchIndexes

        return SearchIndexes(self.context)

    def search(
        self,
        table: str | Table | None = None,
        *,
        near: tuple[str, Vector | Any] | None = None,
        text: str | None = None,
        column: str | None = None,
        k: int = 10,
        filter: str | Filter | None = None,  # noqa: A002 - the word of `stream`
        columns: Sequence[str] | str | None = None,
        metric: str = "cosine",
        exact: bool = False,
        model: Any = None,
    ) -> Hits:
        """Find the `k` best rows among those that `filter` keeps: near to a vector, with words of a text, or both.

        `near` is a column and a vector. `metric` is "cosine", "l2" or "dot"; a higher score is better, and that of
        "l2" is the negative distance. Rows without a vector that can be compared are never found: null, with NaN or
        infinity, and for "cosine" zero. `text` and `column` find rows with words of the text, by BM25. With both,
        `_score` is the sum of reciprocal ranks. `columns` are those of the answer: without them all but vectors, and
        none if the list is empty. `exact=True` uses no index of vectors, which may miss near rows. `table` is a name,
        or a table of this version, whose filters count too.

        With `model`, as in `embed`, `near` is a column of vectors and a value, whose vector the model computes. For a
        column of images, `near` is an example: a path, encoded bytes, an image of Pillow, a reference, or the hash of
        one as an integer. Every image is read, and compared by a hash of its appearance, which finds copies.
        """
        from warpdata.search import SearchRequest, check_count, output_columns, parse_text, search_table

        found = table if isinstance(table, Table) else self.table(table)
        if near is None and text is None:
            raise BadInputError("search needs something to look for", hint="Pass near=(column, vector) or text=….")
        schema = found.raw().schema()
        request = SearchRequest(
            None if near is None else _parse_near(found, near, metric, model),
            None if text is None else parse_text(text, column, schema),
            check_count(k),
            output_columns(columns, schema),
            exact,
        )
        kept = found if filter is None else found.filter(filter)
        return search_table(kept, request, self._search_indexes, lambda: self.io_stats)

    def duplicates(
        self,
        table: str | None,
        column: str,
        *,
        threshold: float = 0.97,
        metric: str = "cosine",
        filter: str | Filter | None = None,  # noqa: A002 - the word of `stream`
    ) -> pa.Table:
        """Find pairs of rows that are nearly equal, the most similar first: `_id`, `_duplicate` and `_score`.

        Vectors are compared by the metric. Images are compared without a model, by the share of equal bits of a hash
        of their appearance. Compares every pair, so the time grows with the square of the rows.
        """
        from warpdata.search import find_duplicates

        found = self.table(table)
        return find_duplicates(found if filter is None else found.filter(filter), column, threshold, metric)

    def project(self, table: str | None, column: str, *, progress: Progress = silent) -> Projection:
        """Place the rows of a column of vectors on a plane, for a map of the table.

        The axes are the two principal components of at most 20,000 rows, which are spread evenly over the table. Every
        row is read once. The same version has the same map.
        """
        from warpdata.search import project_vectors

        return project_vectors(self.table(table), column, progress)

    def embed(
        self,
        table: str | None,
        name: str,
        *,
        model: Any,
        column: str,
        batch_size: int = 64,
        index: str | None = None,
        branch: str | None = None,
        resume: str | None = None,
    ) -> Dataset:
        """Add a column with a vector for each cell of a column, and open the new version.

        `model` is a function from a list of values to an array with a vector for each, or an object with a method
        `encode` that is one. References arrive as objects: `image.as_pil()`. Null cells have no vector. `index` is the
        kind of an index to build on the new column, by cosine: "ivf", "imi" or "lsh". With `resume`, a name of your
        choice, an interrupted call goes on where it was.
        """
        from warpdata.search import embed_batches

        place = self.table(table).name
        with self.edit(f"embed {column}", branch=branch) as edit:
            edit.add_column(place, name, embed_batches(model), columns=[column], batch_size=batch_size, resume=resume)
        opened = self._at_branch(self._target_branch(branch))
        return opened if index is None else opened.create_index(place, name, index, branch=branch)


def _parse_near(table: Table, near: Any, metric: str, model: Any) -> NearClause | ImageClause:
    """Check `near`: a vector, or a value for a model, or an example for a column of images."""
    from warpdata.search import embed_value, is_image, parse_example, parse_near

    is_pair = isinstance(near, tuple | list) and len(near) == 2
    if model is not None and is_pair:
        near = (near[0], embed_value(model, near[1]))
    elif is_pair and isinstance(near[0], str) and is_image(table.schema(), near[0]):
        return parse_example(near[0], near[1], metric)
    return parse_near(near, metric, table.raw().schema())
