"""NPZ like in Dreamer's replay: one episode in a file, arrays of equal length, no metadata.

`action`, `reward`, `is_first`, `is_last`, `is_terminal` and `discount` are reserved; every other array is an
observation. Ambiguous names are written as full block names (`signal/reward`). Steps are not shifted, regardless of
the step that an action or a reward belongs to.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from warpdata.errors import BadInputError, InvalidSourceError, LimitExceededError, ObjectNotFoundError, WarpError
from warpdata.formats.convert.episode_fields import (
    Array,
    attributes_field,
    find_spec,
    is_stepwise,
    is_usual_series,
    iterate_rows,
    list_fields,
    open_episode,
    require_info,
    widen_bf16,
)
from warpdata.formats.convert.npz_flags import FLAG_NAMES, looks_like_flag, make_flags, parse_flags
from warpdata.formats.convert.output import new_output
from warpdata.formats.convert.report import ConversionLog, ConversionReport
from warpdata.formats.wshard import (
    Channel,
    DType,
    Episode,
    FrameReader,
    Timebase,
    WShardFile,
    frames_block,
    save_wshard,
)
from warpdata.limits import MAX_NPZ_BYTES
from warpdata.primitives.paths import check_path

__all__ = ["export_npz", "import_npz"]

_TIMESTAMPS = "time/timestamps_ns"
_SERIES = ("reward", "done", "truncated")
_RESERVED = {"action", "reward", "is_first", "is_last", "is_terminal", "discount", "timestamps_ns"}
_LANES = ("signal/", "action/", "omen/", "uncert/")
_MAX_NAME_BYTES = 60_000


def export_npz(source: str | Path, target: str | Path, *, decode: bool = True) -> ConversionReport:
    """Write one episode as a compressed NPZ. Memory is a few MiB, or the largest compressed block.

    With `decode`, encoded cameras with a frame for each step become arrays of pixels; otherwise they are lost.
    """
    log = ConversionLog("wshard", "npz")
    with open_episode(check_path(source)) as file, new_output(check_path(target)) as staged:
        log.open(list_fields(file))
        with zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            _export(file, archive, log, decode=decode)
        log.close(require_info(file).length)
    log.wrote(check_path(target))
    return log.report()


def _export(file: WShardFile, archive: zipfile.ZipFile, log: ConversionLog, *, decode: bool) -> None:
    info = require_info(file)
    log.changed("meta/episode.episode_id", "only the file name can hold it")
    for field in list_fields(file):
        if field.startswith("meta/") and field not in ("meta/episode.episode_id", "meta/episode.timebase"):
            log.lost(field, "an NPZ has no metadata")
    if info.timebase.type == "timestamps_ns" and is_usual_series(file, _TIMESTAMPS):
        log.kept("meta/episode.timebase", "as the array timestamps_ns")
    elif "meta/episode.timebase" in list_fields(file):
        log.lost("meta/episode.timebase", "an NPZ has no metadata")
    actions = [block for block in file.blocks if block.startswith("action/")]
    written: set[str] = set()
    for block in file.blocks:
        if block.startswith("meta/") or block in _SERIES:
            continue
        if decode and (frames := _frames(file, block)) is not None:
            written.add(_export_frames(file, block, archive, log, frames))
        else:
            written.add(_export_block(file, block, archive, log, is_only_action=actions == [block]))
    flags = make_flags(file, written, log)
    for name, values in flags.items():
        _write(archive, name, values.dtype, values.shape, (values,))


def _export_block(
    file: WShardFile, block: str, archive: zipfile.ZipFile, log: ConversionLog, *, is_only_action: bool
) -> str:
    """Write a block as an array, and return the name of the array; empty if the block does not fit."""
    extra = attributes_field(block)
    if extra in list_fields(file):
        log.lost(extra, "an NPZ has no metadata")
    name = "timestamps_ns" if block == _TIMESTAMPS else "action" if is_only_action else _array_name(block)
    is_readable = block != _TIMESTAMPS or is_usual_series(file, block)
    if not name or not is_readable or not is_stepwise(file, block):
        log.lost(block, "an NPZ holds only arrays with one row for each step")
        return ""
    reader = file[block]
    block_type = reader.block_type
    if name in FLAG_NAMES and not block_type.shape:
        values = reader.read()
        if looks_like_flag(file, name, widen_bf16(values) if block_type.dtype is DType.BF16 else values):
            name = block
    shape = (block_type.rows, *block_type.shape)
    pieces = (rows for _, rows in iterate_rows(reader))
    if block_type.dtype is DType.BF16:
        _write(archive, name, np.dtype("<f4"), shape, map(widen_bf16, pieces))
        log.changed(block, "bf16 became float32; every value is exact")
    else:
        _write(archive, name, block_type.dtype.numpy, shape, pieces)
        if is_only_action and block != "action/action":
            log.changed(block, "the array is named action; the name of the channel is lost")
        else:
            log.kept(block, "" if name == block.partition("/")[2] else f"as {name}")
    return name


def _frames(file: WShardFile, block: str) -> FrameReader | None:
    """Return the frames of an encoded camera, if there is one for each step."""
    spec, length = find_spec(require_info(file), block), require_info(file).length
    if spec is None or "encoding" not in spec.attributes or frames_block(block) not in file or not length:
        return None
    reader = FrameReader(file, block)
    return reader if len(reader) == length and _array_name(block) else None


def _export_frames(
    file: WShardFile, block: str, archive: zipfile.ZipFile, log: ConversionLog, frames: FrameReader
) -> str:
    name = _array_name(block)
    shape = frames.frame(0).shape
    pixels = (_check_shape(frame, shape, block) for frame in frames.frames(0, len(frames)))
    _write(archive, name, np.dtype(np.uint8), (len(frames), *shape), pixels)
    log.changed(block, f"decoded to uint8 in {name}")
    if attributes_field(block) in list_fields(file):
        log.lost(attributes_field(block), "an NPZ has no metadata")
    return name


def _check_shape(frame: Array, shape: tuple[int, ...], block: str) -> Array:
    if frame.shape != shape:
        raise BadInputError(
            f"{block} has frames of {shape} and of {frame.shape}, which form no array", hint="Pass decode=False."
        )
    return frame


def _array_name(block: str) -> str:
    """Return the name of the array from which an import derives the block; empty if there is none."""
    if not block.startswith(_LANES) or "\0" in block or len(block.encode()) > _MAX_NAME_BYTES:
        return ""
    lane, _, name = block.partition("/")
    is_short = lane == "signal" and name and not name.startswith(_LANES)
    # An observation with the name of a flag comes from an NPZ in which it did not follow from the endings.
    is_clear = name not in _RESERVED or name in FLAG_NAMES
    return name if is_short and is_clear else block


def _write(
    archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], rows: Iterable[Array]
) -> None:
    entry = zipfile.ZipInfo(f"{name}.npy")
    entry.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(entry, "w", force_zip64=True) as out:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(out, header)
        for piece in rows:
            out.write(np.ascontiguousarray(piece).tobytes())


def import_npz(
    source: str | Path,
    target: str | Path,
    *,
    episode_id: str | None = None,
    env_id: str = "",
    tick_hz: float | None = None,
) -> ConversionReport:
    """Write an episode file from an NPZ. The default id is the file name without its suffix.

    The whole episode is in memory. Arrays of Python objects are refused, because loading them runs code.
    """
    path, log = check_path(source), ConversionLog("npz", "wshard")
    with new_output(check_path(target)) as staged:
        arrays, rejected = _read(path)
        length = _length(arrays, path)
        log.open([*arrays, *rejected])
        for name, why in rejected.items():
            log.lost(name, why)
        episode = _episode(arrays, length, log)
        timebase = Timebase("timestamps_ns") if episode.timestamps_ns is not None else Timebase("ticks", tick_hz)
        save_wshard(replace(episode, id=episode_id or path.stem, env_id=env_id, timebase=timebase), staged)
        log.close(length)
    log.wrote(check_path(target))
    return log.report()


def _read(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Return all arrays by name, and the ones that an episode cannot hold with the reason."""
    arrays: dict[str, Array] = {}
    rejected: dict[str, str] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > MAX_NPZ_BYTES:
                raise LimitExceededError(f"{path} has {size} bytes of arrays; the most is {MAX_NPZ_BYTES}")
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                if name in arrays or name in rejected:
                    raise InvalidSourceError(f"{path} has the array {name!r} twice")
                if name == entry.filename:
                    rejected[name] = "it is not an array"
                    continue
                with archive.open(entry) as member:
                    array, why = _read_array(member, entry.file_size)
                if array is None:
                    rejected[name] = why
                else:
                    arrays[name] = array
    except FileNotFoundError as error:
        raise ObjectNotFoundError(f"{path} does not exist") from error
    except (ValueError, zipfile.BadZipFile, EOFError, OSError, zlib.error, RuntimeError) as error:
        if isinstance(error, WarpError):
            raise
        raise InvalidSourceError(f"{path} is not a readable NPZ: {error}") from error
    return arrays, rejected


def _read_array(member: IO[bytes], size_bytes: int) -> tuple[Array | None, str]:
    """Return an array, or the reason why an episode cannot hold it. The header is checked against the size first."""
    version = np.lib.format.read_magic(member)
    if version not in ((1, 0), (2, 0)):
        return None, f"its header has the version {version[0]}"
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read_header(member)
    if dtype.hasobject:
        raise ValueError("an array holds Python objects, and loading those runs code")
    if not shape:
        return None, "it has no steps"
    try:
        DType.of(dtype)
    except BadInputError:
        return None, f"an episode has no element type for {dtype}"
    left = size_bytes - member.tell()
    if prod(shape) * dtype.itemsize != left:
        raise ValueError(f"{left} bytes do not fill the shape {shape} of {dtype}")
    flat: Array = np.frombuffer(member.read(left), dtype)
    return flat.reshape(shape, order="F" if is_fortran else "C"), ""


def _length(arrays: dict[str, Array], path: Path) -> int:
    for name in ("is_first", "reward", "action", *arrays):
        if name in arrays:
            return len(arrays[name])
    raise InvalidSourceError(f"{path} has no array with steps")


def _episode(arrays: dict[str, Array], length: int, log: ConversionLog) -> Episode:
    flags = parse_flags(arrays, length, log)
    groups: dict[str, dict[str, Channel]] = {lane: {} for lane in _LANES}
    for name, array in arrays.items():
        if name in flags.used:
            continue
        if len(array) != length:
            log.lost(name, f"it has {len(array)} rows, the episode {length} steps")
            continue
        lane, channel = _split_name(name)
        groups[lane][channel] = Channel(channel, array)
        swapped = array.dtype.byteorder == ">"
        record: Callable[[str, str], None] = log.changed if swapped else log.kept
        record(name, f"as {lane}{channel}" + (", in little-endian order" if swapped else ""))
    return Episode(
        "",
        length,
        observations=groups["signal/"],
        actions=groups["action/"],
        omens=groups["omen/"],
        uncertainties=groups["uncert/"],
        rewards=flags.reward,
        terminations=flags.done,
        truncations=flags.truncated,
        timestamps_ns=flags.timestamps_ns,
    )


def _split_name(name: str) -> tuple[str, str]:
    if name == "action":
        return "action/", "action"
    for lane in _LANES:
        if name.startswith(lane) and name != lane:
            return lane, name.removeprefix(lane)
    return "signal/", name
