"""`DatasetWriter`: samples appended to a table of a branch, each append a commit.

A `Dataset` is one immutable version. A writer follows its own commits: `dataset` is the newest version that it has
made or opened. Implements "Samples" of docs/specs/publish.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from types import TracebackType
from typing import Any, Self

from warpdata.datasets import Dataset, open_dataset
from warpdata.edit import Edit, EditOptions, transaction_of
from warpdata.errors import AlreadyExistsError, BadInputError
from warpdata.kinds import payload_kind
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.progress import Progress, silent
from warpdata.primitives.reprs import short_repr
from warpdata.publish import DatasetBuilder
from warpdata.repository.catalog import MAIN, Address, VersionRef, check_dataset_id, find_head, list_transactions
from warpdata.samples.batches import SampleBatch
from warpdata.samples.fields import MediaField
from warpdata.samples.schema import Schema, check_value, stored_schema
from warpdata.session import Session, connect
from warpdata.settings import Settings

__all__ = ["DatasetWriter", "Sample", "create", "open_writer"]

_TABLE = "main"
_MAX_BATCH_ROWS = 100_000


@check_arguments
def create(
    dataset_id: str,
    schema: Schema,
    *,
    message: str = "create",
    author: str | None = None,
    store: str | None = None,
    settings: Settings | None = None,
) -> DatasetWriter:
    """Create a dataset with an empty table `main`, and an empty artifact for each field of files.

    Raise `AlreadyExistsError` if the dataset exists.
    """
    session = connect(store, settings)
    if find_head(session.writer, check_dataset_id(dataset_id), MAIN) is not None:
        raise AlreadyExistsError(f"{dataset_id} exists", hint=f"Append to it with wd.open_writer({dataset_id!r}).")
    builder = DatasetBuilder(dataset_id, session).add_table(_TABLE, schema.arrow().empty_table())
    for name, field in schema.fields.items():
        if isinstance(field, MediaField):
            builder.add_artifact(name, None).bind(_TABLE, name, name, field.ref_type)
    builder.publish(message, author=author, expected_version="")
    return DatasetWriter(open_dataset(session, Address(dataset_id, MAIN)), author=author)


@check_arguments
def open_writer(
    dataset_id: str,
    *,
    table: str = _TABLE,
    branch: str = MAIN,
    author: str | None = None,
    store: str | None = None,
    settings: Settings | None = None,
) -> DatasetWriter:
    """Open a writer of samples for a table of an existing dataset. Its fields are the columns of the table."""
    dataset = open_dataset(connect(store, settings), Address(check_dataset_id(dataset_id), branch))
    return DatasetWriter(dataset, table=table, branch=branch, author=author)


@check_arguments
class DatasetWriter:
    """Appends samples to one table of a branch. Not for several threads at once; other writers do not matter."""

    def __init__(self, dataset: Dataset, *, table: str = _TABLE, branch: str = MAIN, author: str | None = None) -> None:
        stored = payload_kind("tables").open(dataset.context, table)
        self._bindings = {bound.column: bound for bound in dataset.manifest.bindings if bound.table == table}
        self.schema = stored_schema(stored.schema(), tuple(self._bindings.values()))
        self._dataset = dataset
        self._table = table
        self._branch = branch
        self._author = author or dataset.session.settings.author

    def __repr__(self) -> str:
        return short_repr("DatasetWriter", self._dataset.id, table=self._table, branch=self._branch)

    @property
    def dataset(self) -> Dataset:
        """The newest version that this writer has made or opened."""
        return self._dataset

    def append(self, message: str = "append a sample", *, key: str | None = None) -> Sample:
        """Begin a sample: `with writer.append() as s: s.label = "cat"` commits it at the end, or not at all.

        With a `key`, the sample is appended at most once, also if the program is started again.
        """
        return Sample(self, message, key)

    def append_many(
        self,
        samples: Iterable[Mapping[str, Any]],
        *,
        batch_rows: int = 10_000,
        key: str | None = None,
        message: str = "append samples",
        progress: Progress = silent,
    ) -> int:
        """Append samples in commits of `batch_rows`. Return the number of those that were not there before.

        Memory holds the rows of one batch; media wait on disk, and a batch also ends at 1 GiB of them. With a `key`,
        an interrupted call can be repeated with the same samples: those already committed are skipped.
        """
        if not 1 <= batch_rows <= _MAX_BATCH_ROWS:
            raise BadInputError(f"batch_rows={batch_rows} is not between 1 and {_MAX_BATCH_ROWS:,}")
        waiting = iter(samples)
        start, searched = self._skip_committed(waiting, batch_rows, key)
        total = 0
        while True:
            with SampleBatch(self.schema, self._session.settings.cache_dir) as batch:
                batch.fill(waiting, batch_rows, start)
                count = len(batch)
                if not count:
                    return total
                self._commit(
                    batch,
                    EditOptions(
                        message,
                        self._author,
                        self._branch,
                        None if key is None else _batch_key(key, start, start + count),
                        progress,
                        searched,
                    ),
                )
            start += count
            total += count

    def append_iter(self, samples: Iterable[Mapping[str, Any]]) -> int:
        """Append samples like `append_many`, with its defaults."""
        return self.append_many(samples)

    def refresh(self) -> Dataset:
        """Open the head of the branch, with the commits of other writers."""
        self._dataset = open_dataset(self._session, Address(self._dataset.id, self._branch))
        return self._dataset

    @property
    def _session(self) -> Session:
        return self._dataset.session

    def _append_one(self, values: Mapping[str, Any], message: str, key: str | None) -> None:
        with SampleBatch(self.schema, self._session.settings.cache_dir) as batch:
            batch.add(values)
            self._commit(batch, EditOptions(message, self._author, self._branch, key))

    def _commit(self, batch: SampleBatch, options: EditOptions) -> None:
        dataset = self._dataset
        with Edit(dataset.context, options, lambda *_: None) as edit:
            for column, files in batch.files.items():
                artifact = dataset.artifact(self._bindings[column].artifact)
                artifact.prepare(list(files))
                new = {path: file for path, file in files.items() if path not in artifact}
                if new:
                    edit.add_files(artifact.name, new)
            edit.append(self._table, batch.rows())
        if options.key is not None:  # the commit may be an earlier one
            self.refresh()
            return
        ref = VersionRef(dataset.id, edit.version, edit.commit, self._branch)
        session = dataset.session
        self._dataset = Dataset(session, ref, session.catalog.manifest(ref))

    def _skip_committed(self, samples: Iterator[Any], batch_rows: int, key: str | None) -> tuple[int, int]:
        """Consume the samples that are committed under this key. Return their number, and the searched sequence."""
        if key is None:
            return 0, 0
        known, searched = list_transactions(self._session.writer, self._dataset.id, self._branch)
        start = 0
        while (end := self._committed_end(known, key, start, batch_rows)) is not None:
            skipped = sum(1 for _ in islice(samples, end - start))
            if skipped != end - start:
                raise BadInputError(
                    f"{start + skipped:,} samples were given, but {end:,} or more are committed with the key {key!r}",
                    hint="Repeat the call with the same samples, or use another key.",
                )
            start = end
        return start, searched

    def _committed_end(self, known: set[str], key: str, start: int, batch_rows: int) -> int | None:
        """Return the end of the committed batch that begins here. An earlier call may have had other batches."""
        ends: Iterator[int] = chain([start + batch_rows], range(start + 1, start + _MAX_BATCH_ROWS + 1))
        for end in ends:
            if transaction_of(self._dataset.id, _batch_key(key, start, end)) in known:
                return end
        return None


class Sample:
    """A sample that is being made. Set its fields as attributes or items; the end of the `with` block commits it."""

    __slots__ = ("_key", "_message", "_values", "_writer")
    _key: str | None
    _message: str
    _values: dict[str, Any]
    _writer: DatasetWriter

    def __init__(self, writer: DatasetWriter, message: str, key: str | None) -> None:
        for name, value in {"_writer": writer, "_message": message, "_key": key, "_values": {}}.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return short_repr("Sample", fields=sorted(self._values))

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = check_value(self._writer.schema, name, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._writer._append_one(self._values, self._message, self._key)  # noqa: SLF001 - its own writer


def _batch_key(key: str, start: int, end: int) -> str:
    return f"{key}\n{start}\n{end}"
