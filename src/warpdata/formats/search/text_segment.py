"""Segments of `text` indexes: postings in the order of their words, in a Parquet file.

Implements "Postings" of docs/specs/search.md.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from warpdata.errors import CorruptError
from warpdata.formats.indexes import Segment
from warpdata.formats.parquet import ShardFile, write_row_groups
from warpdata.formats.search.bm25 import Postings, split_words
from warpdata.primitives.arrow_buffers import as_numpy
from warpdata.primitives.parallel import CPU_POOL, IO_POOL
from warpdata.query import Compare, can_match

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TextSegment", "write_text"]

_COLUMNS = ["word", "row", "count", "length"]
_TEXTS, _WORDS = b"warpdata.texts", b"warpdata.words"
_GROUP_ROWS = 65_536


def write_text(chunks: Iterable[pa.Array], path: Path) -> None:
    """Write the segment of a column of texts, whose rows come in chunks. Memory holds all postings."""
    import pyarrow as pa

    numbers: dict[str, int] = {"": 0}
    words, rows, counts, lengths = (array("I") for _ in range(4))
    row = texts = total = 0
    for chunk in chunks:
        for text in chunk.to_pylist():
            if text is not None:
                found = split_words(text)
                texts, total = texts + 1, total + len(found)
                for word, count in [("", 0), *Counter(found).items()]:
                    words.append(numbers.setdefault(word, len(numbers)))
                    rows.append(row)
                    counts.append(count)
                    lengths.append(len(found))
            row += 1
    listed = sorted(numbers, key=str.encode)
    ranks = np.empty(len(listed), np.uint32)
    ranks[[numbers[word] for word in listed]] = np.arange(len(listed), dtype=np.uint32)
    order = np.argsort(ranks[np.frombuffer(words, np.uint32)], kind="stable")
    metadata = {_TEXTS: str(texts), _WORDS: str(total)}
    schema = _schema().with_metadata(metadata)

    def groups() -> Iterator[pa.Table]:
        named = pa.array(listed, pa.string())
        for start in range(0, max(len(order), 1), _GROUP_ROWS):
            part = order[start : start + _GROUP_ROWS]
            own = ranks[np.frombuffer(words, np.uint32)[part]]
            columns = [np.frombuffer(values, np.uint32)[part] for values in (rows, counts, lengths)]
            yield pa.Table.from_arrays(
                [named.take(pa.array(own)), *(pa.array(each) for each in columns)], schema=schema
            )

    write_row_groups(groups(), schema, path, dictionaries=("word",))


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("word", pa.string()), *((name, pa.uint32()) for name in _COLUMNS[1:])])


class TextSegment:
    """A text segment of a store. Safe to share between threads."""

    def __init__(self, file: ShardFile, segment: Segment) -> None:
        if not file.schema.equals(_schema()):
            found = ", ".join(f"{field.name} {field.type}" for field in file.schema)
            raise CorruptError(f"segment {segment.hash} has the columns {found}, and not those of words")
        metadata = file.schema.metadata or {}
        stored = [metadata.get(key, b"").decode("ascii", "replace") for key in (_TEXTS, _WORDS)]
        if not all(text.isdecimal() and len(text) < 16 for text in stored):
            raise CorruptError(f"segment {segment.hash} does not count its texts and words")
        self.text_count, self.word_count = map(int, stored)
        if self.text_count > segment.row_count:
            raise CorruptError(f"segment {segment.hash} has {self.text_count} texts in {segment.row_count} rows")
        self._file = file
        self._segment = segment
        self._bounds = [file.bounds(group.index, ["word"]) for group in file.row_groups()]

    def postings(self, words: Iterable[str]) -> dict[str, Postings]:
        """Return the postings of words, by rows of the segment. The empty word has all texts."""
        wanted = list(words)
        groups = [
            (word, group)
            for word in wanted
            for group, bounds in enumerate(self._bounds)
            if can_match(Compare("word", "=", word), bounds)
        ]
        pool = CPU_POOL if self._file.is_local else IO_POOL
        needed = sorted({group for _, group in groups})
        tables = dict(zip(needed, pool.map_all(lambda group: self._file.decode(group, _COLUMNS), needed), strict=True))
        parts: dict[str, list[Postings]] = {word: [] for word in wanted}
        for word, group in groups:
            parts[word].append(self._select(tables[group], word))
        return {word: Postings.join(found) for word, found in parts.items()}

    def _select(self, table: pa.Table, word: str) -> Postings:
        import pyarrow.compute as pc

        part = table.filter(pc.equal(table["word"], word)).combine_chunks()
        if any(column.null_count for column in part.columns):
            raise CorruptError(f"segment {self._segment.hash} has a null for the word {word!r}")
        rows, counts, lengths = (
            as_numpy(part[name].combine_chunks()).astype(np.int64) for name in ("row", "count", "length")
        )
        if len(rows) and int(rows.max()) >= self._segment.row_count:
            raise CorruptError(f"segment {self._segment.hash} has row {rows.max()} of {self._segment.row_count}")
        return Postings(rows, counts, lengths)
