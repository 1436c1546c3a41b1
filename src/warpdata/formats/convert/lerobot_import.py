"""Import of a LeRobot v3 dataset into episode files, one for each episode.

Videos are not decoded: a video of one episode is copied, and a video of many is cut between packets. If that is not
possible, its frames are decoded to uint8, and the report says so.
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

from warpdata.errors import BadInputError, InvalidSourceError, LimitExceededError
from warpdata.formats.convert.episode_fields import Array
from warpdata.formats.convert.lerobot_layout import (
    DEFAULT_FEATURES,
    IMAGE_NAMES,
    column_to_array,
    decode_images,
    format_path,
    pass_images,
    read_info,
)
from warpdata.formats.convert.lerobot_video import VideoPart, count_frames
from warpdata.formats.convert.output import make_unique, new_output, source_errors, to_file_name
from warpdata.formats.convert.report import ConversionLog, ConversionReport
from warpdata.formats.convert.sidecar import Sidecar, SidecarBlock, read_sidecar
from warpdata.formats.wshard import (
    Block,
    Channel,
    ChannelSpec,
    DType,
    Episode,
    Origin,
    RowSource,
    Timebase,
    compose_wshard,
    frames_block,
    index_video,
)
from warpdata.limits import MAX_LEROBOT_FILE_BYTES
from warpdata.primitives.paths import check_path

__all__ = ["import_lerobot"]

_GROUPS = {"signal": "observations", "action": "actions", "omen": "omens", "uncert": "uncertainties"}
_SERIES = {
    "next.reward": ("reward", "rewards", "float32"),
    "next.done": ("done", "terminations", "bool"),
    "next.truncated": ("truncated", "truncations", "bool"),
}
_MEMBERS = {"time/timestamps_ns": "timestamps_ns", **{block: member for block, member, _ in _SERIES.values()}}


def import_lerobot(source: str | Path, directory: str | Path, *, compression: str = "none") -> ConversionReport:
    """Write a file for each episode into `directory`. Memory is one file of rows and one episode."""
    root = check_path(source)
    info = read_info(root)
    log = ConversionLog("lerobot", "wshard")
    reader = _Dataset(root, info, log)
    reader.record_shared()
    taken: set[str] = set()
    for row in reader.episodes():
        with tempfile.TemporaryDirectory() as scratch:
            with source_errors(root):
                episode, rows = reader.read(row, Path(scratch))
            target = check_path(directory) / f"{make_unique(to_file_name(episode.id), taken)}.wshard"
            with new_output(target) as staged:
                compose_wshard(episode, staged, rows, compression=compression)
        log.close(episode.length)
        log.wrote(target)
    return log.report()


@dataclass(slots=True)
class _EpisodeParts:
    """The parts of one episode read so far."""

    channels: dict[str, dict[str, Channel]] = field(default_factory=lambda: {lane: {} for lane in _GROUPS})
    series: dict[str, Array] = field(default_factory=dict)
    extra: dict[str, Block] = field(default_factory=dict)
    rows: dict[str, RowSource] = field(default_factory=dict)
    declared: dict[str, ChannelSpec] = field(default_factory=dict)


class _Dataset:
    """Reads one dataset, episode by episode."""

    def __init__(self, root: Path, info: dict[str, Any], log: ConversionLog) -> None:
        self._root, self._info, self._log = root, info, log
        self._features: dict[str, dict[str, Any]] = info["features"]
        self._opened: tuple[Path, pa.Table] | None = None
        self._frame_counts: dict[Path, int] = {}

    def record_shared(self) -> None:
        """Record the outcomes of fields that belong to no single episode. The file layout is not content."""
        present = [name for name in ("fps", "robot_type", "splits") if self._info.get(name) is not None]
        has_stats = (self._root / "meta" / "stats.json").exists()
        fields = [f"meta/info.json: {name}" for name in present] + (["meta/stats.json"] if has_stats else [])
        members = [
            (name, member)
            for name, feature in self._features.items()
            for member, value in feature.items()
            if member not in ("dtype", "shape") and value is not None
        ]
        self._log.open([*fields, *(_member_field(*item) for item in members)], is_shared=True)
        for name, member in members:
            if member != "names":
                self._log.lost(_member_field(name, member), "an export computes it again")
            elif name in DEFAULT_FEATURES:
                self._log.lost(_member_field(name, member), "the columns of every dataset have no attributes")
            else:
                self._log.kept(_member_field(name, member), "in each episode, as the attribute names")
        for name in present:
            if name == "splits":
                self._log.lost("meta/info.json: splits", "an episode file is not part of a split")
            else:
                self._log.kept(f"meta/info.json: {name}", "in each episode")
        if has_stats:
            self._log.lost("meta/stats.json", "an export computes them again")
        self._log.close()

    def episodes(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the table of episodes, without statistics."""
        paths = sorted((self._root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
        if not paths:
            raise InvalidSourceError(f"{self._root} has no table of episodes")
        for path in paths:
            with source_errors(path), pq.ParquetFile(path) as file:
                names = [name for name in file.schema_arrow.names if not name.startswith("stats/")]
                for batch in file.iter_batches(columns=names):
                    yield from batch.to_pylist()

    def read(self, row: dict[str, Any], scratch: Path) -> tuple[Episode, dict[str, RowSource]]:
        """Read one episode, and record the outcome of each feature."""
        number = int(row["episode_index"])
        table = self._rows(row)
        text = row.get("wshard")
        sidecar = read_sidecar(text, f"episode {number}") if text is not None else None
        self._log.open([*self._features, "tasks"])
        self._log.kept("tasks", "in meta/episode, as lerobot")
        parts = _EpisodeParts()
        stored = {entry.path: (block, entry) for block, entry in sidecar.blocks.items()} if sidecar else {}
        for name, feature in self._features.items():
            if name in DEFAULT_FEATURES:
                self._read_default(name, table, row, parts)
            elif feature["dtype"] == "video":
                self._read_video(name, row, len(table), scratch, parts, stored.get(name))
            elif name not in table.column_names:
                raise InvalidSourceError(f"episode {number} has no column {name!r}")
            elif feature["dtype"] == "image":
                self._read_images(name, table[name], parts, stored.get(name))
            else:
                self._read_values(name, feature, table[name], parts, stored.get(name))
        return self._episode(row, len(table), sidecar, parts), parts.rows

    def _episode(self, row: dict[str, Any], length: int, sidecar: Sidecar | None, parts: _EpisodeParts) -> Episode:
        number, tasks = int(row["episode_index"]), row.get("tasks")
        about = {"episode_index": number, "tasks": tasks, "robot_type": self._info.get("robot_type")}
        episode = Episode(
            f"episode_{number:06d}",
            length,
            timebase=Timebase("ticks", float(self._info["fps"])),
            attributes={"lerobot": about},
        )
        if sidecar is not None:
            attributes = {**sidecar.episode.attributes, **episode.attributes}
            episode = replace(sidecar.episode, length=length, attributes=attributes)
            if episode.timebase.type == "timestamps_ns" and "timestamps_ns" not in parts.series:
                raise InvalidSourceError(f"episode {number} lacks the timestamps that its timebase needs")
        if parts.declared:
            stated = episode.origin.series if episode.origin else {}
            episode = replace(episode, origin=Origin(series={**stated, **parts.declared}))
        groups = {_GROUPS[lane]: channels for lane, channels in parts.channels.items()}
        return replace(episode, extra=parts.extra, **groups, **parts.series)  # type: ignore[arg-type]

    def _rows(self, row: dict[str, Any]) -> pa.Table:
        """Return the rows of an episode. The last file stays in memory, because it holds many episodes."""
        path = format_path(self._root, self._info.get("data_path"), row["data/chunk_index"], row["data/file_index"])
        if self._opened is None or self._opened[0] != path:
            self._opened = (path, _read_table(path))
        table = self._opened[1]
        wanted = int(row["episode_index"])
        found = np.flatnonzero(table["episode_index"].to_numpy() == wanted)
        if len(found) != row["length"] or (len(found) and found[-1] - found[0] + 1 != len(found)):
            raise InvalidSourceError(f"{path}: episode {wanted} has {len(found)} rows; {row['length']} were expected")
        return table.slice(int(found[0]) if len(found) else 0, len(found))

    def _read_default(self, name: str, table: pa.Table, row: dict[str, Any], parts: _EpisodeParts) -> None:
        """Read a column that every dataset has. It is dropped if an export would write the same values."""
        values = table[name].to_numpy()
        steps = np.arange(len(table))
        implied = {
            "timestamp": (steps / self._info["fps"]).astype(np.float32),
            "frame_index": steps,
            "episode_index": np.full(len(table), row["episode_index"]),
            "index": steps + row["dataset_from_index"],
        }
        if name == "task_index" and len(set(values.tolist())) <= 1 and len(row.get("tasks") or ()) <= 1:
            self._log.kept(name, "in meta/episode, as lerobot")
        elif name in implied and np.array_equal(values, implied[name]):
            self._log.kept(name, "it follows from the order of rows, and the rate")
        else:
            self._put(name, f"signal/{name}", values, {}, parts)

    def _read_values(
        self, name: str, feature: dict[str, Any], column: pa.ChunkedArray, parts: _EpisodeParts, stored: Any
    ) -> None:
        shape = tuple(int(size) for size in feature.get("shape", (1,)))
        dtype = str(feature["dtype"])
        try:
            DType.of(np.dtype(dtype))
        except (TypeError, BadInputError):
            self._log.lost(name, f"an episode has no element type for {dtype}")
            return
        values = column_to_array(column, dtype, shape)
        if stored is not None:
            block, entry = stored
            self._put_stored(name, block, entry, values, parts)
        elif name in _SERIES and shape == (1,) and dtype == _SERIES[name][2]:
            block, member, _ = _SERIES[name]
            parts.series[member] = values.reshape(-1)
            if names := _names(feature):
                dtype_of = DType.of(values.dtype)
                parts.declared[block] = ChannelSpec(block, dtype_of, (), block, names)
            self._log.kept(name, f"as {block}")
        else:
            self._put(name, _block_of(name), values, _names(feature), parts)

    def _put_stored(self, name: str, block: str, entry: SidecarBlock, values: Array, parts: _EpisodeParts) -> None:
        lane, _, rest = block.partition("/")
        shaped = values.reshape(len(values), *entry.shape)
        if block in _MEMBERS:
            parts.series[_MEMBERS[block]] = shaped
            if entry.dtype is DType.BF16:  # float32 here
                widened = DType.of(shaped.dtype)
                parts.declared[block] = ChannelSpec(entry.channel_id or block, widened, entry.shape, block, {})
        elif lane in _GROUPS:
            dtype = None if entry.dtype is DType.BF16 else entry.dtype
            parts.channels[lane][rest] = Channel(entry.channel_id or rest, shaped, dtype, entry.attributes)
        else:
            parts.extra[block] = Block(shaped.tobytes(), entry.content_type, entry.tags)
        self._log.kept(name, f"as {block}")

    def _put(self, name: str, block: str, values: Array, attributes: dict[str, Any], parts: _EpisodeParts) -> None:
        lane, _, rest = block.partition("/")
        rest = make_unique(rest, set(parts.channels[lane]))
        parts.channels[lane][rest] = Channel(rest, values, attributes=attributes)
        self._log.kept(name, f"as {lane}/{rest}")

    def _read_images(self, name: str, column: pa.ChunkedArray, parts: _EpisodeParts, stored: Any) -> None:
        cells = column.to_pylist()
        block, entry = stored or (_block_of(name), None)
        if entry is not None and "encoding" not in entry.attributes:
            self._put_stored(name, block, entry, decode_images(cells, name), parts)
            return
        rest = block.partition("/")[2]
        channel, index = pass_images(cells, self._info["fps"], rest, name)
        if entry is not None:
            channel = replace(channel, id=entry.channel_id or rest, attributes=entry.attributes)
        else:
            channel = replace(channel, attributes={**channel.attributes, **_names(self._features[name])})
        parts.channels["signal"][rest] = channel
        parts.extra[frames_block(block)] = index
        self._log.kept(name, f"as {block}, the encoded images unchanged")

    def _read_video(
        self, name: str, row: dict[str, Any], length: int, scratch: Path, parts: _EpisodeParts, stored: Any
    ) -> None:
        block, entry = stored or (_block_of(name), None)
        place = row[f"videos/{name}/chunk_index"], row[f"videos/{name}/file_index"]
        path = format_path(self._root, self._info.get("video_path"), *place, name)
        first = round(float(row[f"videos/{name}/from_timestamp"]) * self._info["fps"])
        if path not in self._frame_counts:
            self._frame_counts[path] = count_frames(path)
        rest = block.partition("/")[2]
        channel_id = entry.channel_id if entry is not None and entry.channel_id else rest
        if (first, length) == (0, self._frame_counts[path]):
            self._log.kept(name, f"as {block}, the video unchanged")
        else:
            part, cut_path = VideoPart(path, first, length), scratch / f"{len(parts.rows)}.mp4"
            if not part.cut(cut_path):
                names = _names(self._features[name])
                parts.channels["signal"][rest] = Channel(channel_id, part.decode(), attributes=names)
                self._log.changed(name, f"decoded to uint8 as {block}: the episode does not begin with a key frame")
                return
            path = cut_path
            self._log.changed(name, f"cut out as {block}; encoded frames are unchanged, the container is new")
        rows, index = index_video(path, channel_id, is_verified=False)
        known = {**rows.attributes, **_names(self._features[name])} if entry is None else entry.attributes
        parts.rows[block] = replace(rows, attributes=known)
        parts.extra[frames_block(block)] = index


def _names(feature: dict[str, Any]) -> dict[str, Any]:
    """Return the attribute for the names of a feature, unless an export writes the same ones."""
    names, is_image = feature.get("names"), feature["dtype"] in ("image", "video")
    return {} if names is None or (is_image and names == IMAGE_NAMES) else {"names": names}


def _member_field(name: str, member: str) -> str:
    return f"meta/info.json: {member} of {name}"


def _block_of(name: str) -> str:
    if name == "action" or name.startswith("action."):
        return f"action/{name.removeprefix('action.')}"
    return f"signal/{name.removeprefix('observation.')}"


def _read_table(path: Path) -> pa.Table:
    with source_errors(path):
        footer = pq.read_metadata(path)
        size = sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
        if size > MAX_LEROBOT_FILE_BYTES:
            raise LimitExceededError(f"{path} has {size} bytes of rows; the most is {MAX_LEROBOT_FILE_BYTES}")
        return pq.read_table(path, page_checksum_verification=True)
