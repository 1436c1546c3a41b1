"""Export of one episode as MCAP, for tools such as Foxglove: JSON messages in the order of time.

Arrays are `wshard.Array`, images `foxglove.RawImage` or `foxglove.CompressedImage`. Blocks that are no series of
messages, such as videos, are attached unchanged. A metadata record `wshard` holds the rest.
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
    find_spec,
    is_stepwise,
    iterate_rows,
    list_fields,
    open_episode,
    require_info,
    widen_bf16,
)
from warpdata.formats.convert.output import new_output
from warpdata.formats.convert.report import ConversionLog, ConversionReport
from warpdata.formats.convert.sidecar import write_sidecar
from warpdata.formats.wshard import DType, FrameReader, WShardFile, frames_block
from warpdata.primitives.extras import require
from warpdata.primitives.paths import check_path

__all__ = ["export_mcap"]

_MAX_TIME_NS = 2**64 - 1
_TIME = {"type": "object", "properties": {"sec": {"type": "integer"}, "nsec": {"type": "integer"}}}
_BYTES = {"type": "string", "contentEncoding": "base64"}
_COUNT = {"type": "integer", "minimum": 0}

_SCHEMAS: dict[str, dict[str, Any]] = {
    "wshard.Array": {
        "title": "wshard.Array",
        "type": "object",
        "properties": {"data": {"description": "one step: a number or a boolean, or lists of them"}},
    },
    "foxglove.RawImage": {
        "title": "foxglove.RawImage",
        "type": "object",
        "properties": {
            "timestamp": _TIME,
            "frame_id": {"type": "string"},
            "width": _COUNT,
            "height": _COUNT,
            "encoding": {"type": "string"},
            "step": _COUNT,
            "data": _BYTES,
        },
    },
    "foxglove.CompressedImage": {
        "title": "foxglove.CompressedImage",
        "type": "object",
        "properties": {
            "timestamp": _TIME,
            "frame_id": {"type": "string"},
            "data": _BYTES,
            "format": {"type": "string"},
        },
    },
}
"""JSON Schemas of the messages. Those of Foxglove have the members that its viewer expects."""


def export_mcap(source: str | Path, target: str | Path, *, tick_hz: float | None = None) -> ConversionReport:
    """Write one episode. Times are its timestamps, or steps at its rate, or else at `tick_hz`.

    Memory is a few MiB for each channel, or a whole block that is compressed in one frame.
    """
    mcap = require("mcap.writer", purpose="writing MCAP", extra="mcap")
    log = ConversionLog("wshard", "mcap")
    with open_episode(check_path(source)) as file, new_output(check_path(target)) as staged:
        log.open(list_fields(file))
        with staged.open("wb") as out:
            writer = mcap.Writer(out)
            writer.start(profile="", library="warpdata")
            _Export(file, writer, _times(file, tick_hz, log), log).run()
            writer.finish()
        log.close(require_info(file).length)
    log.wrote(check_path(target))
    return log.report()


def _times(file: WShardFile, tick_hz: float | None, log: ConversionLog) -> Callable[[int], int]:
    """Return a function from a step to its time in nanoseconds."""
    info = require_info(file)
    if "time/timestamps_ns" in file:
        stamps = file["time/timestamps_ns"].read()
        if len(stamps) and int(stamps.min()) < 0:
            raise BadInputError(f"the timestamp {int(stamps.min())} is before 1970, which MCAP does not support")
        return lambda step: int(stamps[step])
    rate = tick_hz or info.timebase.hz
    if rate is None:
        log.added("times", "the episode has no rate: one step per second")
        rate = 1.0
    return lambda step: _at_rate(step, rate)


def _at_rate(step: int, rate: float) -> int:
    return min(round(step * 1e9 / rate), _MAX_TIME_NS)


_Message = tuple[int, int, int, bytes]
"""Time, channel, number, content."""


class _Export:
    def __init__(self, file: WShardFile, writer: Any, times: Callable[[int], int], log: ConversionLog) -> None:
        self._file, self._writer, self._times, self._log = file, writer, times, log
        self._schemas: dict[str, int] = {}
        self._paths: dict[str, str] = {}
        self._has_nan: set[str] = set()

    def run(self) -> None:
        file = self._file
        fields = list_fields(file)
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
            self._record_outcome(field)

    def _record_outcome(self, field: str) -> None:
        if field == "meta/identity":
            self._log.lost(field, "a seal is valid only for its own file")
        elif field in self._has_nan:
            self._log.changed(field, "NaN is written as text, without its bits")
        elif field in self._paths:
            self._log.kept(field, f"as {self._paths[field]}" if len(field) < 80 else "")
        else:
            self._log.kept(field, "in the metadata record wshard")

    def _series(self, block: str) -> Iterator[_Message] | None:
        """Return the messages of a block in the order of time; None if it is to be attached."""
        info = require_info(self._file)
        spec, block_type = find_spec(info, block), self._file[block].block_type
        attributes = spec.attributes if spec is not None else {}
        if attributes.get("encoding") in ("jpeg", "png") and frames_block(block) in self._file:
            return self._images(block)
        rate = attributes.get("sampling_rate_hz")
        has_rate = isinstance(rate, int | float) and not isinstance(rate, bool) and math.isfinite(rate) and rate > 0
        if "encoding" in attributes or not block_type.is_declared:
            return None
        is_image = block_type.dtype is DType.U8 and len(block_type.shape) == 3 and block_type.shape[2] in (1, 3)
        schema = "foxglove.RawImage" if is_image and 0 not in block_type.shape else "wshard.Array"
        if is_stepwise(self._file, block):
            return self._rows(block, schema, self._times)
        if has_rate and 0 not in block_type.shape:
            return self._rows(block, schema, lambda step: _at_rate(step, float(rate)))  # type: ignore[arg-type]
        return None

    def _rows(self, block: str, schema: str, times: Callable[[int], int]) -> Iterator[_Message]:
        channel = self._channel(block, schema)
        reader = self._file[block]
        dtype = reader.block_type.dtype
        # A step of no values has no bytes, but still is a step.
        windows = iterate_rows(reader) if reader.block_type.rows else iter(())
        for first, rows in windows:
            values = widen_bf16(rows) if dtype is DType.BF16 else rows
            if values.dtype.kind == "f" and bool(np.isnan(values).any()):
                self._has_nan.add(block)
            for number, row in enumerate(values, first):
                time = times(number)
                content = _raw_image(row, time, block) if schema == "foxglove.RawImage" else {"data": _to_json(row)}
                yield time, channel, number, json.dumps(content, separators=(",", ":"), allow_nan=False).encode()

    def _images(self, block: str) -> Iterator[_Message]:
        channel = self._channel(block, "foxglove.CompressedImage")
        reader = FrameReader(self._file, block)
        for number, time in enumerate(reader.index.times_ns.tolist()):
            if time < 0:
                raise BadInputError(f"{block} has a frame at {time} ns, and MCAP has no negative times")
            content = {
                "timestamp": _stamp(time),
                "frame_id": block,
                "data": base64.b64encode(reader.encoded(number)).decode(),
                "format": reader.index.codec,
            }
            yield time, channel, number, json.dumps(content, separators=(",", ":")).encode()

    def _channel(self, block: str, schema: str) -> int:
        if schema not in self._schemas:
            text = json.dumps(_SCHEMAS[schema]).encode()
            self._schemas[schema] = self._writer.register_schema(schema, "jsonschema", text)
        block_type = self._file[block].block_type
        properties = {"dtype": str(block_type.dtype), "shape": json.dumps(list(block_type.shape))}
        channel: int = self._writer.register_channel(self._paths[block], "json", self._schemas[schema], properties)
        return channel

    def _attach(self, block: str) -> None:
        spec = find_spec(require_info(self._file), block)
        is_mp4 = spec is not None and spec.attributes.get("container") == "mov"
        media = "video/mp4" if is_mp4 else "application/octet-stream"
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


def _to_json(row: Array) -> Any:
    """Return numbers for JSON; non-finite values as text, like Protocol Buffers."""
    if row.dtype.kind != "f" or bool(np.isfinite(row).all()):
        return row.tolist()
    return _replace_nonfinite(row.tolist())


def _replace_nonfinite(value: Any) -> Any:
    if isinstance(value, list):
        return [_replace_nonfinite(item) for item in value]
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
