"""Export of episodes into a LeRobot v3 dataset: rows as Parquet, lossless images, unchanged videos.

All episodes must have the same features. Everything that LeRobot cannot hold goes into a column `wshard` of the table
of episodes, which LeRobot ignores.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from warpdata.errors import BadInputError, SchemaMismatchError
from warpdata.formats.convert.episode_fields import (
    SERIES_BLOCKS,
    find_spec,
    is_encoded,
    is_stepwise,
    list_fields,
    open_episode,
    require_info,
    widen_bf16,
)
from warpdata.formats.convert.lerobot_layout import (
    DATA_PATH,
    DEFAULT_FEATURES,
    EPISODES_PATH,
    IMAGE_NAMES,
    VIDEO_PATH,
    FeatureStats,
    array_to_column,
    image_column,
    image_times,
    tasks_table,
)
from warpdata.formats.convert.output import list_sources, make_unique, new_output
from warpdata.formats.convert.report import ConversionLog, ConversionReport
from warpdata.formats.convert.sidecar import write_sidecar
from warpdata.formats.media import encode_png
from warpdata.formats.wshard import DType, FrameReader, WShardFile, frames_block
from warpdata.limits import MIB
from warpdata.primitives.paths import check_path

__all__ = ["export_lerobot"]

_NAMED = {"reward": "next.reward", "done": "next.done", "truncated": "next.truncated"}
_OBSERVATION = "signal/observation"
_CHUNK_FILES = 1000
_DATA_FILE_MIB = 100
_TOLERANCE_S = 1e-4
_MAX_DIMENSIONS = 5
_SAMPLED_FRAMES = 8
"""Number of encoded frames of each episode that are decoded for the statistics."""


def export_lerobot(
    sources: Iterable[str | Path], target: str | Path, *, fps: float | None = None, task: str | None = None
) -> ConversionReport:
    """Write episodes as one dataset, a directory. Memory is one episode.

    The default `fps` is that of the episodes' timebase. `task` is the text of each episode in LeRobot; by default the
    member `task` of `metadata`, or the id of the environment.
    """
    log, paths = ConversionLog("wshard", "lerobot"), list_sources(sources)
    with new_output(check_path(target)) as staged:
        writer = _Writer(staged, fps, task, log)
        for source in paths:
            with open_episode(source) as file:
                writer.add(file)
        writer.finish()
    log.wrote(check_path(target))
    return log.report()


@dataclass(frozen=True, slots=True)
class _Feature:
    """The feature of a block. `kind` is LeRobot's dtype, including `image` and `video`.

    `names` of the elements, such as motors, come from the attributes of the channel. They are those of the first
    episode that has any.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    names: Any = field(default=None, compare=False)

    def document(self) -> dict[str, Any]:
        default = IMAGE_NAMES if self.kind in ("image", "video") else None
        names = default if self.names is None else self.names
        return {"dtype": self.kind, "shape": list(self.shape or (1,)), "names": names}


@dataclass(slots=True)
class _Writer:
    """Writes one dataset, episode by episode."""

    root: Path
    fps: float | None
    task: str | None
    log: ConversionLog
    features: dict[str, _Feature] | None = None
    stats: dict[str, FeatureStats] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    episodes: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0
    robot_type: Any = None
    data: pq.ParquetWriter | None = None
    data_number: int = 0

    def add(self, file: WShardFile) -> None:
        info, number = require_info(file), len(self.episodes)
        if not info.length:
            raise BadInputError(f"the episode {info.id!r} has no steps, which LeRobot does not support")
        self._check_rate(file)
        features = _features(file, self.fps or 1)
        if self.features is None:
            self.features = features
        elif self.features == features:
            found = {block: feature for block, feature in features.items() if feature.names is not None}
            self.features |= {block: new for block, new in found.items() if self.features[block].names is None}
        else:
            differing = sorted({*self.features.items()} ^ {*features.items()}, key=str)
            names = ", ".join(block for block, _ in differing)
            raise SchemaMismatchError(
                f"the episode {info.id!r} has other features than the first: {names}",
                hint="Episodes of one LeRobot dataset have the same features. Export them separately.",
            )
        self.log.open(list_fields(file))
        entry: dict[str, Any] = {"episode_index": number, "length": info.length}
        columns = self._columns(file, features, entry)
        before = info.attributes.get("lerobot")
        hints = before if isinstance(before, dict) else {}
        self.robot_type = self.robot_type or hints.get("robot_type")
        listed = hints.get("tasks") or ()
        task = str(self.task or info.metadata.get("task") or next(iter(listed), None) or info.env_id or "unknown")
        columns["task_index"] = array_to_column(
            np.full(info.length, self.tasks.setdefault(task, len(self.tasks)), np.int64)
        )
        self._write_rows(pa.table(columns), entry)
        paths = {block: feature.name for block, feature in features.items() if feature.name in entry["kept"]}
        entry |= {"tasks": [task], "wshard": write_sidecar(file, paths)}
        del entry["kept"]
        self.episodes.append(entry)
        self._record_outcomes(file, features, paths)
        self.log.close(info.length)

    def finish(self) -> None:
        """Close the rows, and write the metadata."""
        if self.data is None or self.features is None:
            raise BadInputError("there are no episodes to write")
        self.data.close()
        (self.root / "meta").mkdir()
        pq.write_table(tasks_table(self.tasks), self.root / "meta" / "tasks.parquet")
        listed = [{**entry, "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0} for entry in self.episodes]
        path = self.root / EPISODES_PATH.format(chunk_index=0, file_index=0)
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(listed), path)
        found = {name: stats.document() for name, stats in self.stats.items()}
        self._write_json("stats.json", {name: document for name, document in found.items() if document is not None})
        features = {feature.name: feature.document() for feature in self.features.values()}
        features |= {name: {"dtype": kind, "shape": [1], "names": None} for name, kind in DEFAULT_FEATURES.items()}
        for feature in self.features.values():
            if feature.kind == "video":
                features[feature.name]["info"] = {"video.fps": self.fps}
        has_videos = any(feature.kind == "video" for feature in self.features.values())
        info = {
            "codebase_version": "v3.0",
            "robot_type": self.robot_type,
            "total_episodes": len(self.episodes),
            "total_frames": self.rows,
            "total_tasks": len(self.tasks),
            "chunks_size": _CHUNK_FILES,
            "data_files_size_in_mb": _DATA_FILE_MIB,
            "video_files_size_in_mb": 200,
            "fps": self.fps,
            "splits": {"train": f"0:{len(self.episodes)}"},
            "data_path": DATA_PATH,
            "video_path": VIDEO_PATH if has_videos else None,
            "features": features,
        }
        self._write_json("info.json", info)

    def _write_json(self, name: str, document: Any) -> None:
        text = json.dumps(document, indent=4, ensure_ascii=False)
        (self.root / "meta" / name).write_text(text, encoding="utf-8")

    def _check_rate(self, file: WShardFile) -> None:
        rate = require_info(file).timebase.hz
        if self.fps is None:
            if rate is None:
                hint = "Pass fps=…."
                raise BadInputError(f"the episode {require_info(file).id!r} has no rate", hint=hint)
            self.fps = rate
        if float(self.fps).is_integer():
            self.fps = int(self.fps)
        if rate is not None and rate != self.fps:
            raise SchemaMismatchError(
                f"the episode {require_info(file).id!r} has {rate} steps per second, not {self.fps}"
            )

    def _columns(self, file: WShardFile, features: dict[str, _Feature], entry: dict[str, Any]) -> dict[str, pa.Array]:
        length, number = require_info(file).length, len(self.episodes)
        columns: dict[str, pa.Array] = {}
        entry["kept"] = set()
        for block, feature in features.items():
            entry["kept"].add(feature.name)
            stats = self.stats.setdefault(feature.name, FeatureStats(is_image=feature.kind in ("image", "video")))
            if is_encoded(file, block):
                for frame in FrameReader(file, block).frames(0, min(length, _SAMPLED_FRAMES)):
                    stats.add(frame[None])
                if feature.kind == "video":
                    self._write_video(file, block, feature.name, entry)
                else:
                    columns[feature.name] = image_column(_encoded(file, block))
                continue
            reader = file[block]
            rows = reader.read()
            if reader.block_type.dtype is DType.BF16:
                rows = widen_bf16(rows)
            stats.add(rows)
            columns[feature.name] = (
                image_column(map(encode_png, rows)) if feature.kind == "image" else array_to_column(rows)
            )
        steps = np.arange(length, dtype=np.int64)
        columns["timestamp"] = array_to_column((steps / float(self.fps or 1)).astype(np.float32))
        columns["frame_index"] = array_to_column(steps)
        columns["episode_index"] = array_to_column(np.full(length, number, np.int64))
        columns["index"] = array_to_column(steps + self.rows)
        return columns

    def _write_video(self, file: WShardFile, block: str, name: str, entry: dict[str, Any]) -> None:
        """Write the bytes of the block as a video file of its own."""
        chunk, number = divmod(len(self.episodes), _CHUNK_FILES)
        path = self.root / VIDEO_PATH.format(video_key=name, chunk_index=chunk, file_index=number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            for piece in file[block].pieces():
                out.write(piece)
        length = require_info(file).length
        entry |= {
            f"videos/{name}/chunk_index": chunk,
            f"videos/{name}/file_index": number,
            f"videos/{name}/from_timestamp": 0.0,
            f"videos/{name}/to_timestamp": length / float(self.fps or 1),
        }

    def _write_rows(self, table: pa.Table, entry: dict[str, Any]) -> None:
        chunk, number = divmod(self.data_number, _CHUNK_FILES)
        path = self.root / DATA_PATH.format(chunk_index=chunk, file_index=number)
        if self.data is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.data = pq.ParquetWriter(path, table.schema, compression="zstd")
        self.data.write_table(table)
        entry |= {
            "data/chunk_index": chunk,
            "data/file_index": number,
            "dataset_from_index": self.rows,
            "dataset_to_index": self.rows + len(table),
        }
        self.rows += len(table)
        if path.stat().st_size > _DATA_FILE_MIB * MIB:
            self.data.close()
            self.data, self.data_number = None, self.data_number + 1

    def _record_outcomes(self, file: WShardFile, features: dict[str, _Feature], paths: dict[str, str]) -> None:
        for name in list_fields(file):
            feature = features.get(name)
            if feature is not None and name in paths:
                if file[name].block_type.dtype is DType.BF16:
                    self.log.changed(name, f"bf16 became float32 in {feature.name}; every value is exact")
                else:
                    form = ", unchanged" if is_encoded(file, name) else ", as PNG" if feature.kind == "image" else ""
                    self.log.kept(name, f"as {feature.name}{form}")
            elif name.startswith("frames/") and name.removeprefix("frames/") in features:
                self.log.kept(name, "it follows from the encoded frames")
            elif name in file:
                self.log.lost(
                    name, "LeRobot holds arrays with one row for each step, and videos with one frame for each step"
                )
            elif name.endswith(".attributes") and name.removesuffix(".attributes") not in paths:
                self.log.lost(name, "with its block")
            elif self._is_widened_series(file, name):
                self.log.lost(name, "bf16 became float32, which has a declaration of its own or needs none")
            else:
                self.log.kept(name, "in the column wshard of the episodes")

    def _is_widened_series(self, file: WShardFile, field: str) -> bool:
        """Return whether these are the attributes of rewards or endings in bf16, which become float32."""
        block = field.removesuffix(".attributes")
        return field != block and block in SERIES_BLOCKS and file[block].block_type.dtype is DType.BF16


def _features(file: WShardFile, fps: float) -> dict[str, _Feature]:
    """Return the blocks that LeRobot can hold, in the order of the file."""
    taken = set(DEFAULT_FEATURES)
    actions = [block for block in file.blocks if block.startswith("action/")]
    out: dict[str, _Feature] = {}
    for block in file.blocks:
        if block.startswith(("meta/", "frames/")):
            continue
        kind, shape = _kind(file, block, fps)
        if kind:
            wanted = "action" if actions == [block] else _name(block)
            if block == _OBSERVATION:
                wanted = _observation_name(file, kind)
            spec = find_spec(require_info(file), block)
            names = spec.attributes.get("names") if spec is not None else None
            out[block] = _Feature(make_unique(wanted, taken), kind, shape, names)
    return out


def _observation_name(file: WShardFile, kind: str) -> str:
    """Return the name of an observation without parts, as of a Gymnasium environment: those that policies expect."""
    wanted = "observation.image" if kind in ("image", "video") else "observation.state"
    is_taken = any(_name(block) == wanted for block in file.blocks if block != _OBSERVATION)
    return "observation" if is_taken else wanted


def _name(block: str) -> str:
    lane, _, rest = block.partition("/")
    plain = rest.replace("/", ".")
    return _NAMED.get(block) or {"signal": f"observation.{plain}", "action": f"action.{plain}"}.get(
        lane, f"wshard.{lane}.{plain}"
    )


def _kind(file: WShardFile, block: str, fps: float) -> tuple[str, tuple[int, ...]]:
    """Return LeRobot's dtype and shape for a block; an empty dtype if there is none."""
    if is_encoded(file, block):
        return _encoded_kind(file, block, fps)
    meaning = file[block].block_type
    if not is_stepwise(file, block) or 0 in meaning.shape or len(meaning.shape) > _MAX_DIMENSIONS:
        return "", ()
    is_image = meaning.dtype is DType.U8 and len(meaning.shape) == 3 and meaning.shape[2] == 3
    if block.startswith("signal/") and is_image:
        return "image", meaning.shape
    dtype = np.dtype(np.float32) if meaning.dtype is DType.BF16 else meaning.dtype.numpy
    return dtype.name, meaning.shape


def _encoded_kind(file: WShardFile, block: str, fps: float) -> tuple[str, tuple[int, ...]]:
    spec = find_spec(require_info(file), block)
    if spec is None or frames_block(block) not in file or not block.startswith("signal/"):
        return "", ()
    if spec.attributes["encoding"] in ("jpeg", "png"):
        return _images_kind(file, block, fps)
    if spec.attributes.get("container") != "mov":
        return "", ()
    times = FrameReader(file, block).index.times_ns / 1e9
    length = require_info(file).length
    is_on_time = len(times) == length and bool((abs(times - np.arange(length) / fps) < _TOLERANCE_S).all())
    shape = spec.attributes.get("frame_shape")
    if not is_on_time or not isinstance(shape, list) or not all(isinstance(size, int) for size in shape):
        return "", ()
    return "video", tuple(size for size in shape if isinstance(size, int))


def _images_kind(file: WShardFile, block: str, fps: float) -> tuple[str, tuple[int, ...]]:
    """Return the kind of encoded images: `image` if there is one for each step, at the times that an import derives."""
    reader = FrameReader(file, block)
    if reader.index.times_ns.tolist() != image_times(require_info(file).length, fps):
        return "", ()
    return "image", reader.frame(0).shape


def _encoded(file: WShardFile, block: str) -> Iterator[bytes]:
    reader = FrameReader(file, block)
    for number in range(len(reader)):
        yield reader.encoded(number)
