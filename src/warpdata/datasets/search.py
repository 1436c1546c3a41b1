"""The searches of `Dataset`: methods over the layer that does the work."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from warpdata.errors import BadInputError
from warpdata.kinds.tables import Table
from warpdata.primitives.arguments import check_arguments
from warpdata.storage import IOStats

if TYPE_CHECKING:
    from warpdata.search import Hits, Vector

__all__ = ["DatasetSearch"]


@check_arguments
class DatasetSearch:
    """Search by vectors and by words."""

    @abstractmethod
    def table(self, name: str | None = None) -> Table: ...
    @property
    @abstractmethod
    def io_stats(self) -> IOStats: ...

    def search(
        self,
        table: str | None = None,
        *,
        near: tuple[str, Vector] | None = None,
        text: str | None = None,
        column: str | None = None,
        k: int = 10,
        filter: str | None = None,  # noqa: A002 - the word of `stream`
        columns: Sequence[str] | str | None = None,
        metric: str = "cosine",
        exact: bool = False,
    ) -> Hits:
        """Find the `k` best rows among those that `filter` keeps: near to a vector, with words of a text, or both.

        `near` is a column and a vector. `metric` is "cosine", "l2" or "dot"; a higher score is better, and that of
        "l2" is the negative distance. Rows without a vector that can be compared are never found: null, with NaN or
        infinity, and for "cosine" zero. `text` and `column` find rows with words of the text, by BM25. With both,
        `_score` is the sum of reciprocal ranks. `columns` are those of the answer: without them all but vectors, and
        none if the list is empty. `exact=True` uses no index of vectors, which may miss near rows.
        """
        from warpdata.search import SearchRequest, check_count, output_columns, parse_near, parse_text, search_table

        found = self.table(table)
        if near is None and text is None:
            raise BadInputError("search needs something to look for", hint="Pass near=(column, vector) or text=….")
        schema = found.raw().schema()
        request = SearchRequest(
            None if near is None else parse_near(near, metric, schema),
            None if text is None else parse_text(text, column, schema),
            check_count(k),
            output_columns(columns, schema),
            exact,
        )
        kept = found if filter is None else found.filter(filter)
        return search_table(kept, request, lambda: self.io_stats)
