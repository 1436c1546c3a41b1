"""One episode as MCAP, for tools such as Foxglove: messages in JSON in the order of time.

Arrays are `wshard.Array`, pictures `foxglove.RawImage` or `foxglove.CompressedImage`. What is no series of
messages, films among it, is attached as it is. A metadata record `wshard` tells the rest.
"""

from __future__ import annotations

import base64
import heapq
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from warpdata.errors import BadInputError
from warpdata.formats.convert.episode_fields import (
    Array,
    fields_of,
    info_of,
    is_stepwise,
    opened,
    row_windows,
    spec_of,
    widened,
)
from warpdata.formats.convert.libraries import load
from warpdata.formats.convert.mcap_schemas import SCHEMAS
from warpdata.formats.convert.output_dir import staged
from warpdata.formats.convert.report import ConversionReport, Ledger
from warpdata.formats.convert.sidecar import write_sidecar
from warpdata.formats.wshard import DType, FrameReader, WShardFile, frames_block

__all__ = ["export_mcap"]

_MOST_NS = 2**64 - 1


def export_mcap(source: str | Path, target: str | Path, *, tick_hz: float | None = None) -> ConversionReport:
    """Write one episode. Times are its timestamps, or steps at its rate; `tick_hz` says the rate where none is told.

    Memory is some MiB for each channel, or a whole block where it is compressed in one frame.
    """
    mcap = load("mcap.writer")
    ledger = Ledger("wshard", "mcap")
    with opened(Path(source)) as file, staged(Path(target)) as making:
        ledger.open(fields_of(file))
        with making.open("wb") as out:
            writer = mcap.Writer(out)
            writer.start(profile="", library="warpdata")
            _Export(file, writer, _times(file, tick_hz, ledger), ledger).run()
            writer.finish()
        ledger.close(info_of(file).length)
    ledger.wrote(Path(target))
    return ledger.report()


def _times(file: WShardFile, tick_hz: float | None, ledger: Ledger) -> Callable[[int], int]:
    """When a step is, in nanoseconds."""
    info = info_of(file)
    if "time/timestamps_ns" in file:
        stamps = file["time/timestamps_ns"].read()
        if len(stamps) and int(stamps.min()) < 0:
            raise BadInputError(f"the timestamp {int(stamps.min())} is before 1970, and MCAP has no such times")
        return lambda step: int(stamps[step])
    rate = tick_hz or info.timebase.hz
    if rate is None:
        ledger.added("times", "the episode does not tell its rate: one step a second")
        rate = 1.0
    return lambda step: _at_rate(step, rate)


def _at_rate(step: int, rate: float) -> int:
    return min(round(step * 1e9 / rate), _MOST_NS)


_Message = tuple[int, int, int, bytes]
"""Time, channel, number, content."""


class _Export:
    def __init__(self, file: WShardFile, writer: Any, times: Callable[[int], int], ledger: Ledger) -> None:
        self._file, self._writer, self._times, self._ledger = file, writer, times, ledger
        self._schemas: dict[str, int] = {}
        self._paths: dict[str, str] = {}
        self._has_nan: set[str] = set()

    def run(self) -> None:
        file = self._file
        fields = fields_of(file)
        series: list[Iterator[_Message]] = []
        for block in file.blocks:
            if block in fields and block != "meta/identity":
                self._paths[block] = f"/{block}"
                made = self._series(block)
                if made is None:
                    self._attach(block)
                else:
                    series.append(made)
        for time, channel, number, content in heapq.merge(*series):
            self._writer.add_message(channel, time, content, time, number)
        self._writer.add_metadata("wshard", {"episode": write_sidecar(file, self._paths)})
        for field in fields:
            self._settle(field)

    def _settle(self, field: str) -> None:
        if field == "meta/identity":
            self._ledger.lost(field, "a seal holds for the file it stands in")
        elif field in self._has_nan:
            self._ledger.changed(field, "its NaNs are told as text, without their bits")
        elif field in self._paths:
            self._ledger.kept(field, f"as {self._paths[field]}" if len(field) < 80 else "")
        else:
            self._ledger.kept(field, "in the metadata record wshard")

    def _series(self, block: str) -> Iterator[_Message] | None:
        """Messages for a block, in the order of time; `None` where it is to be attached."""
        info = info_of(self._file)
        spec, meaning = spec_of(info, block), self._file[block].meaning
        attributes = spec.attributes if spec is not None else {}
        if attributes.get("encoding") in ("jpeg", "png") and frames_block(block) in self._file:
            return self._pictures(block)
        rate = attributes.get("sampling_rate_hz")
        own = isinstance(rate, int | float) and not isinstance(rate, bool) and math.isfinite(rate) and rate > 0
        if "encoding" in attributes or not meaning.is_declared:
            return None
        is_picture = meaning.dtype is DType.U8 and len(meaning.shape) == 3 and meaning.shape[2] in (1, 3)
        schema = "foxglove.RawImage" if is_picture and 0 not in meaning.shape else "wshard.Array"
        if is_stepwise(self._file, block):
            return self._rows(block, schema, self._times)
        if own and 0 not in meaning.shape:
            return self._rows(block, schema, lambda step: _at_rate(step, float(rate)))  # type: ignore[arg-type]
        return None

    def _rows(self, block: str, schema: str, times: Callable[[int], int]) -> Iterator[_Message]:
        channel = self._channel(block, schema)
        reader = self._file[block]
        dtype = reader.meaning.dtype
        # Zero values a step are no bytes, but steps they are.
        windows = row_windows(reader) if reader.meaning.rows else iter(())
        for first, rows in windows:
            values = widened(rows) if dtype is DType.BF16 else rows
            if values.dtype.kind == "f" and bool(np.isnan(values).any()):
                self._has_nan.add(block)
            for number, row in enumerate(values, first):
                time = times(number)
                told = _raw_image(row, time, block) if schema == "foxglove.RawImage" else {"data": _plain(row)}
                yield time, channel, number, json.dumps(told, separators=(",", ":"), allow_nan=False).encode()

    def _pictures(self, block: str) -> Iterator[_Message]:
        channel = self._channel(block, "foxglove.CompressedImage")
        reader = FrameReader(self._file, block)
        for number, time in enumerate(reader.index.times_ns.tolist()):
            if time < 0:
                raise BadInputError(f"{block} has a frame at {time} ns, and MCAP has no such times")
            told = {
                "timestamp": _stamp(time),
                "frame_id": block,
                "data": base64.b64encode(reader.encoded(number)).decode(),
                "format": reader.index.codec,
            }
            yield time, channel, number, json.dumps(told, separators=(",", ":")).encode()

    def _channel(self, block: str, schema: str) -> int:
        if schema not in self._schemas:
            text = json.dumps(SCHEMAS[schema]).encode()
            self._schemas[schema] = self._writer.register_schema(schema, "jsonschema", text)
        meaning = self._file[block].meaning
        told = {"dtype": str(meaning.dtype), "shape": json.dumps(list(meaning.shape))}
        made: int = self._writer.register_channel(self._paths[block], "json", self._schemas[schema], told)
        return made

    def _attach(self, block: str) -> None:
        spec = spec_of(info_of(self._file), block)
        film = spec is not None and spec.attributes.get("container") == "mov"
        media = "video/mp4" if film else "application/octet-stream"
        self._writer.add_attachment(0, 0, self._paths[block], media, bytes(self._file[block].raw()))


def _stamp(time: int) -> dict[str, int]:
    return {"sec": time // 10**9, "nsec": time % 10**9}


def _raw_image(row: Array, time: int, block: str) -> dict[str, Any]:
    height, width, colours = row.shape
    return {
        "timestamp": _stamp(time),
        "frame_id": block,
        "width": width,
        "height": height,
        "encoding": "rgb8" if colours == 3 else "mono8",
        "step": width * colours,
        "data": base64.b64encode(row.tobytes()).decode(),
    }


def _plain(row: Array) -> Any:
    """Numbers as JSON has them. What JSON has no number for is told as text, as Protocol Buffers do."""
    if row.dtype.kind != "f" or bool(np.isfinite(row).all()):
        return row.tolist()
    return _without_odd(row.tolist())


def _without_odd(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_odd(item) for item in value]
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
