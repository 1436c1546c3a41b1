"""Episode sets with episodes added or removed, and three-way merges of sets, without reading any episode of the base.

The rows of the index are copied a row group at a time; files stay as they are. Implements "Edits" of
docs/specs/episodes.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import AlreadyExistsError, CorruptError, EpisodeNotFoundError
from warpdata.kinds import ChooseSide, StageContext, StagedBlob, StagedEntry, merge_item, shards_of
from warpdata.kinds.episodes.entry import EpisodesEntry
from warpdata.kinds.episodes.index import CHUNKS, EpisodeIndex
from warpdata.kinds.episodes.index_writer import index_rows, index_schema, metadata_names, write_index
from warpdata.kinds.episodes.stage import EpisodesSpec, index_row, stage_files
from warpdata.limits import EPISODES_CHECK_BYTES
from warpdata.primitives.hashing import fingerprint_file
from warpdata.primitives.suggest import suggest
from warpdata.repository.manifest import Shard, ShardList

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["EpisodeChanges", "StoredRows", "edit_episodes", "merge_episodes"]

_METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class EpisodeChanges:
    """Episodes to add, as `EpisodesSpec` takes them, or None; and ids to remove."""

    added: Any = None
    removed: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The index of a stored set, and the files in the order of its rows."""

    index: EpisodeIndex
    shards: tuple[Shard, ...]

    @property
    def check_bytes(self) -> int:
        return self.index.entry.check_bytes

    def contents(self) -> dict[str, str]:
        """Return the identity of each episode by id."""
        rows = self.index.read_columns(["id", "identity"])
        return dict(zip(rows["id"].to_pylist(), rows["identity"].to_pylist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of an index, and the files of these rows. `tables` can be called more than once."""

    schema: pa.Schema
    tables: Callable[[], Iterator[pa.Table]]
    shards: Sequence[Shard]
    episode_count: int
    step_count: int


def edit_episodes(name: str, stored: StoredRows | None, changes: EpisodeChanges, context: StageContext) -> StagedEntry:
    """Return the set with the changes; without a stored one, a new set.

    Raise `AlreadyExistsError` for an id that exists, and `EpisodeNotFoundError` for an id to remove that does not.
    """
    known = {} if stored is None else stored.index.numbers_by_id
    for episode in changes.removed:
        if episode not in known:
            raise EpisodeNotFoundError(
                f"episodes {name!r} have no episode {episode!r}", hint=suggest(episode, known, label="Episodes")
            )
    removed = set(changes.removed)
    check_bytes = EPISODES_CHECK_BYTES if stored is None else stored.check_bytes
    parts = [] if stored is None else [_selected(stored, [episode not in removed for episode in known])]
    blobs: list[StagedBlob] = []
    count = 0
    if changes.added is not None:
        episodes = stage_files(name, EpisodesSpec(changes.added), context, check_bytes)
        for files in episodes:
            first, blob = files[0]
            if first.id in known and first.id not in removed:
                raise AlreadyExistsError(
                    f"episodes {name!r} already have an episode {first.id!r}, and {blob.path} is another",
                    hint="Remove it first to replace it.",
                )
        rows = index_rows([index_row(files) for files in episodes])
        blobs, count = [blob for files in episodes for _, blob in files], len(episodes)
        steps = sum(row.length for files in episodes for row, _ in files)
        parts.append(_Rows(rows.schema, lambda: iter([rows]), shards_of(blobs), count, steps))
    return _write(name, parts, check_bytes, blobs, count, context)


def merge_episodes(
    name: str, sides: tuple[StoredRows | None, StoredRows, StoredRows], choose: ChooseSide, context: StageContext
) -> StagedEntry:
    """Merge by id. `sides` are the base, ours and theirs. Episodes of theirs follow ours."""
    base, ours, theirs = sides
    before, mine, other = ({} if side is None else side.contents() for side in (base, ours, theirs))
    kept = {
        episode: merge_item(episode, (before.get(episode), mine.get(episode), other.get(episode)), choose)
        for episode in mine | other
    }
    parts = [
        _selected(ours, [kept[episode] == "ours" for episode in mine]),
        _selected(theirs, [kept[episode] == "theirs" for episode in other]),
    ]
    return _write(name, parts, ours.check_bytes, [], 0, context)


def _selected(stored: StoredRows, mask: Sequence[bool]) -> _Rows:
    """Return the rows of a stored index for which the mask is true."""
    selected = np.asarray(mask, dtype=bool)
    lengths, files = _counts(stored)
    if int(files.sum()) != len(stored.shards):
        raise CorruptError(f"the index of episodes {stored.index.name!r} does not match its {len(stored.shards)} files")
    remaining = iter(stored.shards)
    groups = [tuple(islice(remaining, int(count))) for count in files]

    def tables() -> Iterator[pa.Table]:
        start = 0
        for rows in stored.index.row_groups():
            yield rows.filter(selected[start : start + rows.num_rows])
            start += rows.num_rows

    shards = [shard for group, is_kept in zip(groups, selected, strict=True) if is_kept for shard in group]
    return _Rows(stored.index.schema, tables, shards, int(selected.sum()), int(lengths[selected].sum()))


def _counts(stored: StoredRows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the steps and the number of files of each episode."""
    import pyarrow.compute as pc

    index = stored.index
    has_chunks = index.entry.file_count is not None
    rows = index.read_columns(["length", CHUNKS] if has_chunks else ["length"])
    lengths = np.asarray(rows["length"].to_numpy(), dtype=np.int64)
    if not has_chunks:
        return lengths, np.ones(len(lengths), dtype=np.int64)
    return lengths, np.maximum(np.asarray(pc.list_value_length(rows[CHUNKS]).to_numpy(), dtype=np.int64), 1)


def _write(
    name: str,
    parts: Sequence[_Rows],
    check_bytes: int,
    blobs: Sequence[StagedBlob],
    added_count: int,
    context: StageContext,
) -> StagedEntry:
    shards = tuple(shard for part in parts for shard in part.shards)
    count = sum(part.episode_count for part in parts)
    has_chunks = len(shards) > count
    schema = _joined_schema([part.schema for part in parts], has_chunks=has_chunks)
    tables = (_conform(table, schema) for part in parts for table in part.tables())
    index = write_index(tables, schema, context.directory, f"{name}.index")
    index_blob = StagedBlob(index.path, fingerprint_file(index.path))
    entry = EpisodesEntry(
        shards=ShardList(),
        index=index_blob.fingerprint.blob,
        index_footer=index.footer,
        episode_count=count,
        step_count=sum(part.step_count for part in parts),
        check_bytes=check_bytes,
        file_count=len(shards) if has_chunks else None,
    )
    return StagedEntry(entry.payload(), shards, (*blobs, index_blob), added_count)


def _joined_schema(schemas: Sequence[pa.Schema], *, has_chunks: bool) -> pa.Schema:
    """Return the columns of an index with the rows of all these. Metadata of different types become wider."""
    import pyarrow as pa

    found: dict[str, list[pa.DataType]] = {}
    for schema in schemas:
        for member in _members(schema).values():
            found.setdefault(member.name, []).append(member.type)
    return index_schema([pa.field(name, _wider(found[name])) for name in metadata_names(found)], has_chunks=has_chunks)


def _members(schema: pa.Schema) -> Mapping[str, pa.Field]:
    if _METADATA not in schema.names:
        return {}
    struct = schema.field(_METADATA).type
    return {struct[at].name: struct[at] for at in range(struct.num_fields)}


def _wider(types: Sequence[pa.DataType]) -> pa.DataType:
    import pyarrow as pa

    if all(kind == types[0] for kind in types):
        return types[0]
    is_number = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in types)
    return pa.float64() if is_number else pa.string()


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns of another index."""
    import pyarrow as pa

    columns = []
    for wanted in schema:
        if wanted.name == _METADATA:
            columns.append(_conform_metadata(table, wanted.type))
        elif wanted.name in table.column_names:
            columns.append(table[wanted.name])
        else:
            assert wanted.name == CHUNKS, "all other columns are required"
            columns.append(pa.array([[]] * table.num_rows, wanted.type))
    return pa.table(columns, schema=schema)


def _conform_metadata(table: pa.Table, wanted: pa.StructType) -> pa.Array:
    import pyarrow as pa

    known = _members(table.schema)
    column = table[_METADATA].combine_chunks() if known else None
    members = []
    for at in range(wanted.num_fields):
        member = wanted[at]
        if column is None or member.name not in known:
            members.append(pa.nulls(table.num_rows, member.type))
            continue
        values = column.field(member.name)
        if pa.types.is_floating(values.type) and pa.types.is_string(member.type):
            values = pa.array([None if value is None else repr(value) for value in values.to_pylist()], pa.string())
        members.append(values.cast(member.type))
    return pa.StructArray.from_arrays(members, fields=list(wanted))
