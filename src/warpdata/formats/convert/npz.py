"""NPZ as Dreamer's replay has it: one episode a file, arrays of equal length, no metadata.

`action`, `reward`, `is_first`, `is_last`, `is_terminal` and `discount` have their meaning; every other array
is an observation. Names that would be mistaken for others are written as full block names (`signal/reward`).
Steps stay where they are: nothing is shifted, whichever step an action or a reward belongs to.
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
    fields_of,
    info_of,
    is_stepwise,
    opened,
    row_windows,
    spec_of,
    widened,
)
from warpdata.formats.convert.npz_flags import LIKE_FLAGS, derived_flags, is_mistakable, taken_flags
from warpdata.formats.convert.output_dir import staged
from warpdata.formats.convert.report import ConversionReport, Ledger
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

__all__ = ["export_npz", "import_npz"]

_SERIES = ("reward", "done", "truncated")
_RESERVED = {"action", "reward", "is_first", "is_last", "is_terminal", "discount", "timestamps_ns"}
_LANES = ("signal/", "action/", "omen/", "uncert/")
_MAX_NAME_BYTES = 60_000


def export_npz(source: str | Path, target: str | Path, *, decode: bool = True) -> ConversionReport:
    """Write one episode as a compressed NPZ. Memory is some MiB, or the largest compressed block.

    With `decode`, encoded cameras that have a frame for each step become arrays of pixels; otherwise they are lost.
    """
    ledger = Ledger("wshard", "npz")
    with opened(Path(source)) as file, staged(Path(target)) as making:
        ledger.open(fields_of(file))
        with zipfile.ZipFile(making, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            _export(file, archive, ledger, decode=decode)
        ledger.close(info_of(file).length)
    ledger.wrote(Path(target))
    return ledger.report()


def _export(file: WShardFile, archive: zipfile.ZipFile, ledger: Ledger, *, decode: bool) -> None:
    info = info_of(file)
    ledger.changed("meta/episode.episode_id", "the name of the file has to tell it")
    for field in fields_of(file):
        if field.startswith("meta/") and field not in ("meta/episode.episode_id", "meta/episode.timebase"):
            ledger.lost(field, "an NPZ has no metadata")
    if info.timebase.type == "timestamps_ns":
        ledger.kept("meta/episode.timebase", "as the array timestamps_ns")
    elif info.timebase.hz is not None:
        ledger.lost("meta/episode.timebase", "an NPZ has no metadata")
    lone = [block for block in file.blocks if block.startswith("action/")]
    own: set[str] = set()
    for block in file.blocks:
        if block.startswith("meta/") or block in _SERIES:
            continue
        if decode and (frames := _frames(file, block)) is not None:
            own.add(_export_frames(file, block, archive, ledger, frames))
        else:
            own.add(_export_block(file, block, archive, ledger, is_lone_action=lone == [block]))
    flags = derived_flags(file, own, ledger)
    for name, values in flags.items():
        _write(archive, name, values.dtype, values.shape, (values,))


def _export_block(
    file: WShardFile, block: str, archive: zipfile.ZipFile, ledger: Ledger, *, is_lone_action: bool
) -> str:
    """Write a block as an array, and return the array's name; nothing where it does not fit."""
    extra = attributes_field(block)
    if extra in fields_of(file):
        ledger.lost(extra, "an NPZ has no metadata")
    name = "timestamps_ns" if block == "time/timestamps_ns" else "action" if is_lone_action else _array_name(block)
    if not name or not is_stepwise(file, block):
        ledger.lost(block, "an NPZ has arrays with one row for each step only")
        return ""
    reader = file[block]
    meaning = reader.meaning
    if name in LIKE_FLAGS and not meaning.shape:
        values = reader.read()
        if is_mistakable(file, name, widened(values) if meaning.dtype is DType.BF16 else values):
            name = block
    shape = (meaning.rows, *meaning.shape)
    pieces = (rows for _, rows in row_windows(reader))
    if meaning.dtype is DType.BF16:
        _write(archive, name, np.dtype("<f4"), shape, map(widened, pieces))
        ledger.changed(block, "bf16 became float32; every value is exact")
    else:
        _write(archive, name, meaning.dtype.numpy, shape, pieces)
        if is_lone_action and block != "action/action":
            ledger.changed(block, "the array is called action; its name is not kept")
        else:
            ledger.kept(block, "" if name == block.partition("/")[2] else f"as {name}")
    return name


def _frames(file: WShardFile, block: str) -> FrameReader | None:
    """The frames of an encoded camera, where there is one for each step."""
    spec, length = spec_of(info_of(file), block), info_of(file).length
    if spec is None or "encoding" not in spec.attributes or frames_block(block) not in file or not length:
        return None
    reader = FrameReader(file, block)
    return reader if len(reader) == length and _array_name(block) else None


def _export_frames(file: WShardFile, block: str, archive: zipfile.ZipFile, ledger: Ledger, frames: FrameReader) -> str:
    name = _array_name(block)
    shape = frames.frame(0).shape
    pixels = (_of_shape(frame, shape, block) for frame in frames.frames(0, len(frames)))
    _write(archive, name, np.dtype(np.uint8), (len(frames), *shape), pixels)
    ledger.changed(block, f"decoded to uint8 in {name}")
    if attributes_field(block) in fields_of(file):
        ledger.lost(attributes_field(block), "an NPZ has no metadata")
    return name


def _of_shape(frame: Array, shape: tuple[int, ...], block: str) -> Array:
    if frame.shape != shape:
        raise BadInputError(
            f"{block} has frames of {shape} and of {frame.shape}, which are no array", hint="Say decode=False."
        )
    return frame


def _array_name(block: str) -> str:
    """What to call the array of a block, so that its block can be told from it; nothing where that is not possible."""
    if not block.startswith(_LANES) or "\0" in block or len(block.encode()) > _MAX_NAME_BYTES:
        return ""
    lane, _, name = block.partition("/")
    plain = lane == "signal" and name and not name.startswith(_LANES)
    # An observation that is called like a flag comes from an NPZ, where it did not follow from the others.
    clear = name not in _RESERVED or name in LIKE_FLAGS
    return name if plain and clear else block


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
    """Make an episode file of an NPZ. Its id is the name of the file without its ending, unless told otherwise.

    The whole episode is in memory. Arrays of Python objects are refused: they would run code.
    """
    path, ledger = Path(source), Ledger("npz", "wshard")
    with staged(Path(target)) as making:
        arrays, odd = _read(path)
        length = _length(arrays, path)
        ledger.open([*arrays, *odd])
        for name, why in odd.items():
            ledger.lost(name, why)
        episode = _episode(arrays, length, ledger)
        made = Timebase("timestamps_ns") if episode.timestamps_ns is not None else Timebase("ticks", tick_hz)
        save_wshard(replace(episode, id=episode_id or path.stem, env_id=env_id, timebase=made), making)
        ledger.close(length)
    ledger.wrote(Path(target))
    return ledger.report()


def _read(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """All arrays by name, and those that no episode can hold with the reason."""
    arrays: dict[str, Array] = {}
    odd: dict[str, str] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > MAX_NPZ_BYTES:
                raise LimitExceededError(f"{path} holds {size} bytes of arrays; at most {MAX_NPZ_BYTES} are read")
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                if name in arrays or name in odd:
                    raise InvalidSourceError(f"{path} holds the array {name!r} twice")
                if name == entry.filename:
                    odd[name] = "it is not an array"
                    continue
                with archive.open(entry) as member:
                    array, why = _read_array(member, entry.file_size)
                if array is None:
                    odd[name] = why
                else:
                    arrays[name] = array
    except FileNotFoundError as error:
        raise ObjectNotFoundError(f"{path} does not exist") from error
    except (ValueError, zipfile.BadZipFile, EOFError, OSError, zlib.error, NotImplementedError) as error:
        if isinstance(error, WarpError):
            raise
        raise InvalidSourceError(f"{path} is not an NPZ that can be read: {error}") from error
    return arrays, odd


def _read_array(member: IO[bytes], size_bytes: int) -> tuple[Array | None, str]:
    """An array, or why an episode cannot hold it. What its header claims is compared with its size first."""
    version = np.lib.format.read_magic(member)
    if version not in ((1, 0), (2, 0)):
        return None, f"its header has the version {version[0]}"
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read_header(member)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, and reading those would run code")
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
    raise InvalidSourceError(f"{path} holds no array with steps")


def _episode(arrays: dict[str, Array], length: int, ledger: Ledger) -> Episode:
    flags = taken_flags(arrays, length, ledger)
    groups: dict[str, dict[str, Channel]] = {lane: {} for lane in _LANES}
    for name, array in arrays.items():
        if name in flags.used:
            continue
        if len(array) != length:
            ledger.lost(name, f"it has {len(array)} rows, the episode {length} steps")
            continue
        lane, channel = _place(name)
        groups[lane][channel] = Channel(channel, array)
        swapped = array.dtype.byteorder == ">"
        settle: Callable[[str, str], None] = ledger.changed if swapped else ledger.kept
        settle(name, f"as {lane}{channel}" + (", in little-endian order" if swapped else ""))
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


def _place(name: str) -> tuple[str, str]:
    if name == "action":
        return "action/", "action"
    for lane in _LANES:
        if name.startswith(lane) and name != lane:
            return lane, name.removeprefix(lane)
    return "signal/", name
