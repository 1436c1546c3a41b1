"""A LeRobot v3 dataset into episode files, one for each episode.

Films are not decoded: a film of one episode passes through to the byte, one of many is cut between packets.
Only where that is not possible its frames are decoded to uint8, and the report says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from warpdata.errors import BadInputError, InvalidSourceError, LimitExceededError, WarpError
from warpdata.formats.convert.episode_fields import Array
from warpdata.formats.convert.lerobot_images import decoded_pictures, passed_pictures
from warpdata.formats.convert.lerobot_layout import DEFAULT_FEATURES, filled, read_info, values_of
from warpdata.formats.convert.lerobot_video import FilmPart, cut_film, frame_count, read_frames
from warpdata.formats.convert.output_dir import free_name, plain_name, staged
from warpdata.formats.convert.report import ConversionReport, Ledger
from warpdata.formats.convert.sidecar import Kept, Sidecar, read_sidecar
from warpdata.formats.wshard import (
    Block,
    Channel,
    DType,
    Episode,
    RowSource,
    Timebase,
    compose_wshard,
    frames_block,
    index_film,
)
from warpdata.limits import MAX_LEROBOT_FILE_BYTES

__all__ = ["import_lerobot"]

_GROUPS = {"signal": "observations", "action": "actions", "omen": "omens", "uncert": "uncertainties"}
_SERIES = {
    "next.reward": ("reward", "rewards", "float32"),
    "next.done": ("done", "terminations", "bool"),
    "next.truncated": ("truncated", "truncations", "bool"),
}
_MEMBERS = {"time/timestamps_ns": "timestamps_ns", **{block: member for block, member, _ in _SERIES.values()}}


def import_lerobot(source: str | Path, folder: str | Path, *, compression: str = "none") -> ConversionReport:
    """Make an episode file of each episode, in `folder`. Memory is one file of rows and one episode."""
    root = Path(source)
    info = read_info(root)
    ledger = Ledger("lerobot", "wshard")
    reader = _Dataset(root, info, ledger)
    reader.settle_shared()
    taken: set[str] = set()
    for row in reader.episodes():
        with tempfile.TemporaryDirectory() as scratch:
            try:
                episode, rows = reader.read(row, Path(scratch))
            except (KeyError, TypeError) as error:
                if isinstance(error, WarpError):
                    raise
                raise InvalidSourceError(f"{root}: the table of episodes is not complete: {error!r}") from error
            target = Path(folder) / f"{free_name(plain_name(episode.id), taken)}.wshard"
            with staged(target) as making:
                compose_wshard(episode, making, rows, compression=compression)
        ledger.close(episode.length)
        ledger.wrote(target)
    return ledger.report()


@dataclass(slots=True)
class _Parts:
    """An episode that is being put together."""

    channels: dict[str, dict[str, Channel]] = field(default_factory=lambda: {lane: {} for lane in _GROUPS})
    series: dict[str, Array] = field(default_factory=dict)
    extra: dict[str, Block] = field(default_factory=dict)
    rows: dict[str, RowSource] = field(default_factory=dict)


class _Dataset:
    """A dataset that is being read."""

    def __init__(self, root: Path, info: dict[str, Any], ledger: Ledger) -> None:
        self._root, self._info, self._ledger = root, info, ledger
        self._features: dict[str, dict[str, Any]] = info["features"]
        self._opened: tuple[Path, pa.Table] | None = None
        self._frame_counts: dict[Path, int] = {}

    def settle_shared(self) -> None:
        """What belongs to no episode alone. How files are laid out is nobody's content."""
        told = [name for name in ("fps", "robot_type", "splits") if self._info.get(name) is not None]
        has_stats = (self._root / "meta" / "stats.json").exists()
        fields = [f"meta/info.json: {name}" for name in told] + (["meta/stats.json"] if has_stats else [])
        self._ledger.open(fields, is_shared=True)
        for name in told:
            if name == "splits":
                self._ledger.lost("meta/info.json: splits", "an episode file is not part of a split")
            else:
                self._ledger.kept(f"meta/info.json: {name}", "in each episode")
        if has_stats:
            self._ledger.lost("meta/stats.json", "an export counts anew")
        self._ledger.close()

    def episodes(self) -> Iterator[dict[str, Any]]:
        """The table of episodes, row by row, without its statistics."""
        paths = sorted((self._root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
        if not paths:
            raise InvalidSourceError(f"{self._root} has no table of episodes")
        for path in paths:
            names = [name for name in _schema(path).names if not name.startswith("stats/")]
            for batch in pq.ParquetFile(path).iter_batches(columns=names):
                yield from batch.to_pylist()

    def read(self, row: dict[str, Any], scratch: Path) -> tuple[Episode, dict[str, RowSource]]:
        """One episode, every feature accounted for."""
        number = int(row["episode_index"])
        table = self._rows(row)
        told = row.get("wshard")
        sidecar = read_sidecar(told, f"episode {number}") if told is not None else None
        self._ledger.open([*self._features, "tasks"])
        self._ledger.kept("tasks", "in meta/episode, as lerobot")
        parts = _Parts()
        kept = {entry.path: (block, entry) for block, entry in sidecar.blocks.items()} if sidecar else {}
        for name, feature in self._features.items():
            if name in DEFAULT_FEATURES:
                self._settle_default(name, table, row, parts)
            elif feature["dtype"] == "video":
                self._take_film(name, row, len(table), scratch, parts, kept.get(name))
            elif name not in table.column_names:
                raise InvalidSourceError(f"episode {number} has no column {name!r}")
            elif feature["dtype"] == "image":
                self._take_pictures(name, table[name], parts, kept.get(name))
            else:
                self._take_values(name, feature, table[name], parts, kept.get(name))
        return self._episode(row, len(table), sidecar, parts), parts.rows

    def _episode(self, row: dict[str, Any], length: int, sidecar: Sidecar | None, parts: _Parts) -> Episode:
        number, tasks = int(row["episode_index"]), row.get("tasks")
        about = {"episode_index": number, "tasks": tasks, "robot_type": self._info.get("robot_type")}
        made = Episode(
            f"episode_{number:06d}",
            length,
            timebase=Timebase("ticks", float(self._info["fps"])),
            attributes={"lerobot": about},
        )
        if sidecar is not None:
            told = {**sidecar.episode.attributes, **made.attributes}
            made = replace(sidecar.episode, length=length, attributes=told)
            if made.timebase.type == "timestamps_ns" and "timestamps_ns" not in parts.series:
                raise InvalidSourceError(f"episode {number} lacks the timestamps that its timebase needs")
        groups = {_GROUPS[lane]: channels for lane, channels in parts.channels.items()}
        return replace(made, extra=parts.extra, **groups, **parts.series)  # type: ignore[arg-type]

    def _rows(self, row: dict[str, Any]) -> pa.Table:
        """The rows of an episode. The file that was read last is remembered, as it holds many."""
        path = filled(self._root, self._info.get("data_path"), row["data/chunk_index"], row["data/file_index"])
        if self._opened is None or self._opened[0] != path:
            self._opened = (path, _read_table(path))
        table = self._opened[1]
        wanted = int(row["episode_index"])
        found = np.flatnonzero(table["episode_index"].to_numpy() == wanted)
        if len(found) != row["length"] or (len(found) and found[-1] - found[0] + 1 != len(found)):
            raise InvalidSourceError(f"{path}: episode {wanted} has {len(found)} rows; {row['length']} are told")
        return table.slice(int(found[0]) if len(found) else 0, len(found))

    def _settle_default(self, name: str, table: pa.Table, row: dict[str, Any], parts: _Parts) -> None:
        """Columns that every dataset has. They are dropped where an export makes the same ones."""
        values = table[name].to_numpy()
        steps = np.arange(len(table))
        implied = {
            "timestamp": (steps / self._info["fps"]).astype(np.float32),
            "frame_index": steps,
            "episode_index": np.full(len(table), row["episode_index"]),
            "index": steps + row["dataset_from_index"],
        }
        if name == "task_index" and len(set(values.tolist())) <= 1 and len(row.get("tasks") or ()) <= 1:
            self._ledger.kept(name, "in meta/episode, as lerobot")
        elif name in implied and np.array_equal(values, implied[name]):
            self._ledger.kept(name, "it follows from the order of rows, and the rate")
        else:
            self._put(name, f"signal/{name}", values, {}, parts)

    def _take_values(
        self, name: str, feature: dict[str, Any], column: pa.ChunkedArray, parts: _Parts, ours: Any
    ) -> None:
        shape = tuple(int(size) for size in feature.get("shape", (1,)))
        dtype = str(feature["dtype"])
        try:
            DType.of(np.dtype(dtype))
        except (TypeError, BadInputError):
            self._ledger.lost(name, f"an episode has no element type for {dtype}")
            return
        values = values_of(column, dtype, shape)
        if ours is not None:
            block, entry = ours
            self._put_ours(name, block, entry, values, parts)
        elif name in _SERIES and shape == (1,) and dtype == _SERIES[name][2]:
            parts.series[_SERIES[name][1]] = values.reshape(-1)
            self._ledger.kept(name, f"as {_SERIES[name][0]}")
        else:
            attributes = {"names": feature["names"]} if feature.get("names") else {}
            self._put(name, _block_of(name), values, attributes, parts)

    def _put_ours(self, name: str, block: str, entry: Kept, values: Array, parts: _Parts) -> None:
        lane, _, rest = block.partition("/")
        shaped = values.reshape(len(values), *entry.shape)
        if block in _MEMBERS:
            parts.series[_MEMBERS[block]] = shaped
        elif lane in _GROUPS:
            dtype = None if entry.dtype is DType.BF16 else entry.dtype
            parts.channels[lane][rest] = Channel(entry.channel_id or rest, shaped, dtype, entry.attributes)
        else:
            parts.extra[block] = Block(shaped.tobytes(), entry.content_type, entry.tags)
        self._ledger.kept(name, f"as {block}")

    def _put(self, name: str, block: str, values: Array, attributes: dict[str, Any], parts: _Parts) -> None:
        lane, _, rest = block.partition("/")
        rest = free_name(rest, set(parts.channels[lane]))
        parts.channels[lane][rest] = Channel(rest, values, attributes=attributes)
        self._ledger.kept(name, f"as {lane}/{rest}")

    def _take_pictures(self, name: str, column: pa.ChunkedArray, parts: _Parts, ours: Any) -> None:
        cells = column.to_pylist()
        block, entry = ours or (_block_of(name), None)
        if entry is not None and "encoding" not in entry.attributes:
            self._put_ours(name, block, entry, decoded_pictures(cells, name), parts)
            return
        rest = block.partition("/")[2]
        channel, index = passed_pictures(cells, self._info["fps"], rest, name)
        if entry is not None:
            channel = replace(channel, id=entry.channel_id or rest, attributes=entry.attributes)
        parts.channels["signal"][rest] = channel
        parts.extra[frames_block(block)] = index
        self._ledger.kept(name, f"as {block}, the encoded pictures as they are")

    def _take_film(self, name: str, row: dict[str, Any], length: int, scratch: Path, parts: _Parts, ours: Any) -> None:
        block, entry = ours or (_block_of(name), None)
        place = row[f"videos/{name}/chunk_index"], row[f"videos/{name}/file_index"]
        path = filled(self._root, self._info.get("video_path"), *place, name)
        first = round(float(row[f"videos/{name}/from_timestamp"]) * self._info["fps"])
        if path not in self._frame_counts:
            self._frame_counts[path] = frame_count(path)
        rest = block.partition("/")[2]
        channel_id = entry.channel_id if entry is not None and entry.channel_id else rest
        if (first, length) == (0, self._frame_counts[path]):
            self._ledger.kept(name, f"as {block}, the film as it is")
        else:
            part, cut = FilmPart(path, first, length), scratch / f"{len(parts.rows)}.mp4"
            if not cut_film(part, cut):
                parts.channels["signal"][rest] = Channel(channel_id, read_frames(part))
                self._ledger.changed(name, f"decoded to uint8 as {block}: the episode does not begin with a key frame")
                return
            path = cut
            self._ledger.changed(name, f"cut out as {block}; encoded frames are as they were, the container is new")
        rows, index = index_film(path, channel_id, is_verified=False)
        parts.rows[block] = rows if entry is None else replace(rows, attributes=entry.attributes)
        parts.extra[frames_block(block)] = index


def _block_of(name: str) -> str:
    if name == "action" or name.startswith("action."):
        return f"action/{name.removeprefix('action.')}"
    return f"signal/{name.removeprefix('observation.')}"


def _read_table(path: Path) -> pa.Table:
    _schema(path)
    told = pq.read_metadata(path)
    size = sum(told.row_group(number).total_byte_size for number in range(told.num_row_groups))
    if size > MAX_LEROBOT_FILE_BYTES:
        raise LimitExceededError(f"{path} holds {size} bytes of rows; at most {MAX_LEROBOT_FILE_BYTES} are read")
    try:
        return pq.read_table(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise InvalidSourceError(f"{path} is not a Parquet file that can be read: {error}") from error


def _schema(path: Path) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise InvalidSourceError(f"{path} is not a Parquet file that can be read: {error}") from error
