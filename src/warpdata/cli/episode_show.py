"""`warp episodes show`: the channels of one episode, and a plot of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.episode_cameras import Camera, find_cameras
from warpdata.cli.episode_plot import draw_episode
from warpdata.cli.episode_targets import OpenEpisode, open_episode
from warpdata.cli.format import bytes_text
from warpdata.cli.options import command, episodes_option
from warpdata.cli.output import note, print_facts, print_json, print_line, print_table
from warpdata.formats.wshard import JoinedFile

__all__ = ["show_episode"]


@command(
    "show",
    json_keys={
        "id": "id of the episode",
        "where": "the dataset and the set of episodes, or the file",
        "env_id": "environment",
        "length": "number of steps",
        "timebase": "{type, tick_hz, dt_ns}",
        "size_bytes": "size of the files",
        "files": "number of files",
        "metadata": "metadata of the recording",
        "apart": "names of blocks that each chunk has separately, such as video without a frame index",
        "blocks": (
            "list of {name, dtype, shape, rows, rate_hz, encoding, codec, stored_bytes, size_bytes}; codec is none, "
            "zstd, lz4 or zstd chunks, or several of these; dtype is null if the block declares none; encoding is "
            "that of images or video, such as jpeg or h264, whose rows are frames and whose rate is theirs, else null"
        ),
    },
    reads=True,
)
@click.argument("target", metavar="TARGET")
@click.argument("episode", required=False, metavar="[EPISODE]")
@episodes_option()
@click.option(
    "--png", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a plot to this file."
)
@click.pass_obj
def show_episode(cli: CliContext, target: str, episode: str | None, episodes: str | None, png: Path | None) -> None:
    """Show the channels of an episode with their rates and lengths.

    EPISODE is the id or the number, from 0, of an episode in a dataset. Cameras show their resolution and
    frames per second. --png writes a plot with frames of the cameras and the values of small channels.

    \b
      warp episodes show acme/robot ep_003 --png ep_003.png
      warp episodes show recordings/ep_003.wshard
    """
    with cli.progress(f"Opening {target}"):
        opened = open_episode(cli, target, episodes, episode)
        document = _document(opened)
        if png is not None:
            png.write_bytes(draw_episode(opened))
    if cli.as_json:
        print_json(document)
    else:
        _print(document)
    if png is not None:
        note(f"wrote {png}")


def _document(episode: OpenEpisode) -> dict[str, Any]:
    info = episode.info
    encoded = {camera.name: camera for camera in find_cameras(episode) if camera.encoding is not None}
    names = list(episode.file.blocks)
    return {
        "id": info.id,
        "where": episode.source,
        "env_id": info.env_id,
        "length": info.length,
        "timebase": asdict(info.timebase),
        "size_bytes": episode.size_bytes,
        "files": episode.file_count,
        "metadata": dict(info.metadata),
        "apart": [name for name in episode.unjoined_blocks if name.removeprefix("frames/") not in encoded],
        "blocks": [_block(episode, name, encoded.get(name)) for name in [*names, *(encoded.keys() - set(names))]],
    }


def _block(episode: OpenEpisode, name: str, camera: Camera | None) -> dict[str, Any]:
    files = episode.file.parts if isinstance(episode.file, JoinedFile) else (episode.file,)
    readers = [file[name] for file in files]
    entries, first = [reader.entry for reader in readers], readers[0].block_type
    spec = episode.info.channels.get(name) or episode.info.lanes.get(name)
    encoding = spec.attributes.get("encoding") if spec else None
    codecs = dict.fromkeys(entry.codec.name.lower() + (" chunks" if entry.is_chunked else "") for entry in entries)
    rows = sum(reader.block_type.rows for reader in readers) if first.is_declared and encoding is None else None
    return {
        "name": name,
        "dtype": str(first.dtype) if first.is_declared else None,
        "shape": list(first.shape) if camera is None or camera.size is None else [*camera.size, 3],
        "rows": rows if camera is None else camera.frame_count,
        "rate_hz": (spec.attributes.get("sampling_rate_hz") if spec else None) or (camera.fps if camera else None),
        "encoding": encoding,
        "codec": " and ".join(codecs),
        "stored_bytes": sum(entry.stored_bytes for entry in entries),
        "size_bytes": sum(entry.size_bytes for entry in entries),
    }


def _print(document: dict[str, Any]) -> None:
    rate = document["timebase"]["tick_hz"]
    print_facts(
        {
            "episode": document["id"],
            "environment": document["env_id"] or None,
            "steps": f"{document['length']:,}",
            "time": f"{rate:g} Hz" if rate else document["timebase"]["type"],
            "size": bytes_text(document["size_bytes"]) + _files_text(document["files"]),
            "source": document["where"],
            **document["metadata"],
        }
    )
    print_line()
    print_table(
        ("block", "type", ">rows", ">rate", "stored", ">size"),
        (
            (
                block["name"],
                _type(block),
                "" if block["rows"] is None else f"{block['rows']:,}",
                "" if block["rate_hz"] is None else f"{block['rate_hz']:.4g} {'fps' if block['encoding'] else 'Hz'}",
                _stored(block),
                bytes_text(block["size_bytes"]),
            )
            for block in document["blocks"]
            if not block["name"].startswith("meta/")
        ),
    )
    if document["apart"]:
        note(f"blocks that each file has separately: {', '.join(document['apart'])}")


def _type(block: dict[str, Any]) -> str:
    if block["encoding"]:
        size = f" {block['shape'][1]}×{block['shape'][0]}" if block["shape"] else ", no frame index"
        return f"camera {block['encoding']}{size}"
    return "bytes" if block["dtype"] is None else f"{block['dtype']}{block['shape'] or ''}"


def _stored(block: dict[str, Any]) -> str:
    share = block["stored_bytes"] / max(block["size_bytes"], 1)
    return "" if block["codec"] == "none" else f"{block['codec']}, {share:.0%}"


def _files_text(count: int) -> str:
    return f" in {count} files" if count > 1 else ""
