"""If this fails, text inside a dataset controls the terminal of a person who only looks at it.

A dataset carries text of its author: column names, cells, paths, messages, metadata, ids. An escape sequence in
it can retitle a window, hide lines, or make a line show another command than the one it copies. Every command
runs over a dataset with such text in every field that accepts it.
"""

from __future__ import annotations

import ast
import io
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import run
from tests.cli.test_app import COMMANDS
from warpdata import errors
from warpdata.cli import terminal
from warpdata.cli.exit_codes import report_error
from warpdata.cli.format import to_json
from warpdata.cli.output import note, print_facts, print_line, print_rows, print_table
from warpdata.wshard import Channel, Episode, Timebase, save_wshard

SOURCE = Path(terminal.__file__).parent
ESCAPES = "\x1b[31mred\x1b[2J\x1b]0;title\x07\x1b]8;;http:x\x1b\\\x9b2J\x7f\x00"
BIDI = "\u202eabc\u2066\u200f\ufeff\u2028"
HOSTILE = f"{ESCAPES}{BIDI}\r\x08\nhint: run this"
ONE_LINE = HOSTILE.replace("\n", "").replace("\x00", "")


def assert_clean(text: str) -> None:
    """Check that a text has no control characters but line feeds, and that no line imitates a hint."""
    bad = sorted({char for char in text if not (char.isprintable() or char == "\n")})
    assert not bad, [hex(ord(char)) for char in bad]
    assert not re.search(r"^hint: run this", text, re.MULTILINE), text


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Publish a dataset with hostile text in every field that accepts it, and write hostile files."""
    made = tmp_path_factory.mktemp("hostile")
    nested = pa.array([{HOSTILE: HOSTILE}], pa.struct([(HOSTILE, pa.string())]))
    columns = {HOSTILE: [HOSTILE], "nested": nested, "image": [f"{ONE_LINE}/a.png"], "map": [[HOSTILE]]}
    episode = Episode(
        ONE_LINE[:30],
        2,
        HOSTILE,
        Timebase("ticks", 10.0),
        observations={"joint": Channel("joint", np.zeros((2, 3), np.float32))},
        metadata={ONE_LINE: HOSTILE},
    )
    (made / "recordings").mkdir()
    save_wshard(episode, made / "recordings" / "one.wshard")
    store = str(made / "store")
    builder = wd.DatasetBuilder("acme/hostile", store).add_table("main", pa.table(columns))
    builder.add_artifact("raw", {f"{ONE_LINE}/a.png": b"x"}).bind("main", "image", "raw", "image")
    builder.add_episodes("demos", str(made / "recordings"))
    builder.add_tensors("weights", {ONE_LINE: np.zeros(4, np.float32)})
    builder.publish(HOSTILE, label="v1", author=ONE_LINE, metadata={ONE_LINE: HOSTILE})
    more = wd.DatasetBuilder("acme/hostile", store).append_table("main", pa.table(columns))
    more.publish(HOSTILE, author=ONE_LINE)
    (made / "images").mkdir()
    (made / "images" / f"{ONE_LINE}.png").write_bytes(b"x")
    (made / "images" / f"a.{ONE_LINE}").write_bytes(b"x")
    (made / "table.csv").write_text("a,b\n1,2\n")
    return made


@pytest.fixture
def hostile(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(directory)
    monkeypatch.setenv("WARP_STORE", str(directory / "store"))
    return directory


HOSTILE_ID = "acme/hostile"
RUNS: dict[str, list[list[str]]] = {
    "demo": [["--store", f"nothing://{ONE_LINE}"]],
    "init": [[HOSTILE_ID, "-o", "-"], [HOSTILE_ID, "--table", HOSTILE]],
    "doctor": [[], ["--store", f"nothing://{ONE_LINE}"]],
    "completion": [["show", "--shell", "bash"], [HOSTILE]],
    "info": [[HOSTILE_ID], [f"acme/hostile@{HOSTILE}"], [HOSTILE]],
    "schema": [[HOSTILE_ID], [HOSTILE_ID, "--table", HOSTILE]],
    "head": [
        [HOSTILE_ID],
        [HOSTILE_ID, "--columns", HOSTILE + "x"],
        [HOSTILE_ID, "--filter", HOSTILE],
        [HOSTILE_ID, "--filter", "nothing = 1"],
    ],
    "inspect": [[HOSTILE_ID]],
    "stream": [[HOSTILE_ID, "--columns", "nothing"], [HOSTILE_ID, "--format", "csv", "--limit", "0", "--columns", "x"]],
    "members": [[HOSTILE_ID], [HOSTILE_ID, "--prefix", HOSTILE], [HOSTILE_ID, "--artifact", HOSTILE]],
    "cat": [[HOSTILE_ID, "--ref", f"{ONE_LINE}/b.png"], [HOSTILE_ID, "--ref", "a.png"]],
    "episodes ls": [[HOSTILE_ID], ["recordings"], [HOSTILE]],
    "episodes show": [[HOSTILE_ID, "0"], ["recordings/one.wshard"], [HOSTILE_ID, "nothing"], [HOSTILE_ID, HOSTILE]],
    "episodes verify": [[HOSTILE_ID], ["recordings"], [HOSTILE]],
    "episodes recover": [[HOSTILE.replace("\x00", "")]],
    "episodes convert": [["recordings", "out.npz"], ["recordings", "again.hdf5"], [HOSTILE_ID, "x"]],
    "tensors ls": [[HOSTILE_ID]],
    "tensors show": [[HOSTILE_ID], [HOSTILE_ID, "--tensors", HOSTILE]],
    "tensors view": [[HOSTILE_ID], [HOSTILE_ID, "--narrow", f"{HOSTILE}=0:0/2"]],
    "tensors verify": [[HOSTILE_ID]],
    "tensors import": [["acme/other", HOSTILE.replace("\x00", "")]],
    "tensors export": [[HOSTILE_ID, "out.safetensors"], [HOSTILE_ID, "nothing/out.safetensors"]],
    "list-remote": [[], ["acme/"], [HOSTILE]],
    "publish": [
        [HOSTILE_ID, "--table", f"main={HOSTILE}"],
        [HOSTILE_ID, "--table", HOSTILE],
        [HOSTILE_ID, "--artifact", "raw=images", "--dry-run"],
        [HOSTILE_ID, "--artifact", f"raw={HOSTILE}"],
    ],
    "ingest imagefolder": [["acme/images", "images"], [HOSTILE_ID, HOSTILE.replace("\x00", "")]],
    "ingest audiofolder": [["acme/audio", "images"]],
    "ingest webdataset": [["acme/web", "images"]],
    "ingest csv": [["acme/csv", "table.csv", "--table", HOSTILE]],
    "label": [[HOSTILE_ID, "--list"], [HOSTILE_ID, HOSTILE]],
    "branch": [[HOSTILE_ID, "--list"], [HOSTILE_ID, HOSTILE]],
    "warm": [[HOSTILE_ID], [HOSTILE_ID, "--tables", HOSTILE]],
    "cache stats": [[]],
    "cache gc": [[], ["--limit", HOSTILE]],
    "cache verify": [[]],
    "cache clear": [["--yes"]],
    "sql": [[f"SELECT * FROM '{HOSTILE_ID}'"], [f"SELECT '{ONE_LINE}'"], [HOSTILE]],
    "export": [[HOSTILE_ID, "exported"], [HOSTILE_ID, "exported", "--format", "imagefolder"], [HOSTILE, "x"]],
    "ingest huggingface": [["acme/hf", "images"], [HOSTILE_ID, HOSTILE.replace("\x00", "")]],
    "ingest lance": [["acme/lance", "images"]],
    "ingest litdata": [["acme/litdata", "images"]],
    "ingest mds": [["acme/mds", "images"]],
    "ingest warpdata3": [["acme/old", "images"]],
    "restore": [[HOSTILE_ID, HOSTILE], [HOSTILE_ID, "main", "--dry-run"]],
    "copy": [[HOSTILE_ID, "--name", "acme/copied", "--dry-run"], [HOSTILE, "x"]],
    "rename": [[HOSTILE_ID, "acme/renamed", "--dry-run"], [HOSTILE_ID, HOSTILE]],
    "rm": [[HOSTILE_ID, "--dry-run"], [f"acme/hostile@{HOSTILE}"]],
    "pin add": [[HOSTILE_ID, HOSTILE], [HOSTILE_ID, "job"]],
    "pin ls": [[]],
    "pin rm": [["job"], [HOSTILE]],
    "append": [[HOSTILE_ID, f"main={HOSTILE}"], [HOSTILE_ID, HOSTILE]],
    "delete": [[HOSTILE_ID, "--where", "true", "--dry-run"], [HOSTILE_ID, "--where", HOSTILE]],
    "update": [[HOSTILE_ID, "--all", "--set", f"nothing={HOSTILE}"], [HOSTILE_ID, "--where", HOSTILE, "--set", "a=b"]],
    "upsert": [[HOSTILE_ID, f"main={HOSTILE}", "--on", "image"]],
    "add-column": [[HOSTILE_ID, ONE_LINE, "--expr", "1", "--dry-run"], [HOSTILE_ID, "x", "--expr", HOSTILE]],
    "drop-column": [[HOSTILE_ID, HOSTILE, "--dry-run"], [HOSTILE_ID, "nothing"]],
    "rename-column": [[HOSTILE_ID, HOSTILE, "x", "--dry-run"], [HOSTILE_ID, "nothing", "x"]],
    "cast": [[HOSTILE_ID, HOSTILE, "int64", "--dry-run"], [HOSTILE_ID, "image", HOSTILE]],
    "add-files": [[HOSTILE_ID, "raw", "images", "--dry-run"], [HOSTILE_ID, HOSTILE, "images"]],
    "merge": [[HOSTILE_ID, HOSTILE], [HOSTILE_ID, "v1", "--dry-run"]],
    "compact": [[HOSTILE_ID, "--dry-run"], [HOSTILE_ID, "--table", HOSTILE]],
    "gc": [["--dry-run"], ["--keep", HOSTILE]],
    "log": [[HOSTILE_ID], [f"acme/hostile@{HOSTILE}"]],
    "diff": [["acme/hostile@v1", HOSTILE_ID], [HOSTILE_ID]],
    "verify": [[HOSTILE_ID]],
    "find-commit": [[HOSTILE_ID, HOSTILE]],
    "collection add": [["acme/pets", "a.png", "table.csv", "--label", ONE_LINE], ["acme/pets", HOSTILE, "table.csv"]],
    "collection upload": [["acme/more", "images"], ["acme/more", "recordings"]],
    "collection create-version": [["acme/pets", "v1"], ["acme/pets", HOSTILE]],
    "collection versions": [["acme/pets"], [HOSTILE_ID]],
    "collection state": [["acme/pets"], ["acme/pets", HOSTILE]],
    "collection compare": [["acme/pets", "v1"], ["acme/pets", HOSTILE]],
    "collection stats": [["acme/pets"], [HOSTILE]],
    "collection restore": [["acme/pets", "v1"], ["acme/pets", HOSTILE]],
    "collection train": [["acme/pets", "--task-type", ONE_LINE, "--model", HOSTILE]],
    "collection jobs": [["acme/pets"], [HOSTILE_ID]],
    "collection impact": [["acme/pets", "a.png"], ["acme/pets", HOSTILE]],
    "collection purge": [["acme/pets", "a.png", "--dry-run"], ["acme/pets", HOSTILE, "--yes"]],
    "collection resume": [["acme/pets"], [HOSTILE]],
    "collection repair": [["acme/pets"], ["acme/pets", HOSTILE]],
    "collection integrity": [["acme/pets"], [HOSTILE]],
    "collection rm": [["acme/pets", HOSTILE], ["acme/pets", "a.png"]],
    "import": [["coco", "acme/pets", "recordings"], ["voc", HOSTILE_ID, "images"], ["yolo", "acme/pets", HOSTILE]],
    "labels inbox sync": [["acme/pets"], [HOSTILE_ID], [HOSTILE]],
    "labels inbox ls": [["acme/pets"], [HOSTILE_ID], [HOSTILE]],
    "labels inbox show": [["acme/pets", HOSTILE], [HOSTILE_ID, "x"]],
    "labels inbox accept": [["acme/pets", HOSTILE], ["acme/pets", "--clean", "--annotator", ONE_LINE]],
    "labels inbox reject": [["acme/pets", HOSTILE, "--note", ONE_LINE]],
    "labels inbox add": [["acme/pets", "table.csv"], ["acme/pets", "table.csv", "--version", ONE_LINE]],
    "labels quality": [["acme/pets"], [HOSTILE_ID], [HOSTILE]],
    "labels check": [["https://127.0.0.1:1", HOSTILE_ID], [HOSTILE, "acme/pets"]],
    "embed": [[HOSTILE_ID, "x", "--function", HOSTILE], [HOSTILE_ID, HOSTILE, "--function", "json:dumps"]],
    "simulate": [[HOSTILE_ID, "--ranks", "2"], [HOSTILE]],
    "login": [[HOSTILE, "--token-file", "table.csv"], ["https://127.0.0.1:1", "--token-file", HOSTILE]],
    "logout": [[HOSTILE], ["https://127.0.0.1:1"]],
    "index create": [[HOSTILE_ID, "main", ONE_LINE], [HOSTILE_ID, "main", "image"]],
    "index ls": [[HOSTILE_ID], [HOSTILE]],
    "index rebuild": [[HOSTILE_ID, HOSTILE], [HOSTILE_ID, "main.image"]],
    "index drop": [[HOSTILE_ID, HOSTILE], [HOSTILE_ID, "main.image"]],
    "search": [[HOSTILE_ID, "--text", HOSTILE, "--column", "image"], [HOSTILE_ID, "--text", "x", "--column", ONE_LINE]],
    "server user": [[HOSTILE], ["ann"]],
    "server role": [["ann", HOSTILE, "viewer"], ["ann", "acme", "viewer"]],
    "server token create": [["ann", "--name", ONE_LINE], [HOSTILE]],
    "server token list": [["ann"], [HOSTILE]],
    "server token revoke": [["ann", HOSTILE], [HOSTILE, "x"]],
    "server s3-key": [["ann", "acme", "--name", ONE_LINE], ["ann", HOSTILE]],
    "server s3-revoke": [["ann", HOSTILE], [HOSTILE, "x"]],
    "server backup": [["backup.db"], ["recordings"]],
    "server link": [["ann"], [HOSTILE]],
    "server revoke": [[HOSTILE]],
    "server reindex": [[]],
    "server audit": [[]],
}


def test_every_command_is_tried() -> None:
    assert not set(COMMANDS) - set(RUNS) - SERVERS


SERVERS = {"serve", "tensors serve", "worker", "gateway"}
"""Commands that run until they are interrupted."""


@pytest.mark.parametrize("name", RUNS)
def test_command_prints_no_control_characters(name: str, hostile: Path) -> None:
    for args in RUNS[name]:
        for more in ([], ["--json"], ["--debug"]):
            result = run(*name.split(), *args, *more)
            assert_clean(result.stdout)
            assert_clean(result.stderr)


def test_stream_escapes_only_on_terminal(hostile: Path) -> None:
    for format_name in ("jsonl", "csv"):
        piped = run("stream", HOSTILE_ID, "--format", format_name, "--columns", "image,map").stdout_bytes
        assert "\u202e".encode() in piped
    written = io.BytesIO()
    terminal.TerminalSink(written).write(f"{HOSTILE}\n".encode())
    assert_clean(written.getvalue().decode().replace("\nhint: run this", ""))


def test_json_document_stays_the_same() -> None:
    document = {HOSTILE: [HOSTILE, "ä", "\U000e0041", "\U0001f600"]}
    for indent in (0, 2):
        encoded = to_json(document, indent=indent)
        assert_clean(encoded.decode())
        assert json.loads(encoded) == document
    assert "ä" in to_json(document).decode()


@pytest.mark.parametrize("error_class", [errors.BadInputError, errors.CorruptError, ZeroDivisionError])
@pytest.mark.parametrize("debug", [False, True])
def test_errors_are_clean(error_class: Any, debug: bool, capsys: pytest.CaptureFixture[str]) -> None:
    made = error_class(HOSTILE)
    if isinstance(made, errors.WarpError):
        made.hint = HOSTILE
    report_error(made, debug=debug)
    report_error(errors.ManifestCorruptedError(HOSTILE, problems=(HOSTILE,)))
    assert_clean(capsys.readouterr().err)


def test_logged_warnings_are_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library logs what went wrong beside the command, with names of files and objects."""

    def connect(_: object) -> None:
        logging.getLogger("warpdata.storage.cache").warning("%s is corrupt", HOSTILE)
        raise errors.BadInputError("x")

    monkeypatch.setattr("warpdata.cli.context.CliContext.connect", connect)
    shown = run("list-remote").stderr
    assert shown.startswith("warning: ")
    assert_clean(shown)
    assert len(run("list-remote", "--json").stderr.splitlines()) == 1


def test_output_functions_are_clean(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.text import Text

    outputs: list[Callable[[], None]] = [
        lambda: print_line(HOSTILE, style="red"),
        lambda: print_facts({HOSTILE: HOSTILE, "text": Text(ONE_LINE)}),
        lambda: print_table((HOSTILE,), [(HOSTILE,), (Text(ONE_LINE),)]),
        lambda: print_rows(pa.table({HOSTILE: [HOSTILE]}), {HOSTILE: HOSTILE}),
        lambda: note(HOSTILE),
    ]
    for colour in (False, True):
        monkeypatch.setenv("FORCE_COLOR" if colour else "NO_COLOR", "1")
        for print_hostile in outputs:
            print_hostile()
            captured = capsys.readouterr()
            for text in (captured.out, captured.err):
                styled = re.sub(r"\x1b\[(?:0|1|2|31)?m", "", text) if colour else text
                assert_clean(styled.replace("\x1b[1;2m", "").replace("\x1b[22m", ""))


WRITERS = re.compile(r"click\.(echo|secho|echo_via_pager)|print|sys\.std(out|err)(\.buffer)?\.write")


def test_only_one_module_writes_to_the_terminal() -> None:
    """Raw writes are allowed where a command writes data: `cat`, `stream` and the long list of `members`."""
    allowed = {"terminal.py", "cat.py", "stream.py", "members.py", "reference.py"}
    offenders = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and path.name not in allowed:
                called = ast.unparse(node.func)
                if re.fullmatch(
                    r"click\.(echo|secho|echo_via_pager)|print|sys\.std(out|err)(\.buffer)?\.write", called
                ):
                    offenders.append(f"{path.name}:{node.lineno}: {called}")
    assert not offenders
