"""If this fails, an implementation that follows the tensor pages computes other bytes, ids or requests."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks
from tests.formats.tensors.artifacts import Sample, chosen_of, rows_of
from tests.reference import tensor_views as reference
from warpdata import limits, tensors
from warpdata.formats.tensors import extents, peer, reads, shards, transfer
from warpdata.formats.tensors.cuda import verify as cuda_verify
from warpdata.formats.tensors.dtypes import DTYPES
from warpdata.kinds.tensors import reader
from warpdata.tensors import crop, encode_index, narrow, parse_index, transpose

SPEC = ROOT / "docs" / "specs" / "tensors.md"
REFERENCE = ROOT / "docs" / "reference" / "tensors.md"


def example(info: str) -> str:
    found = blocks(SPEC, info)
    assert len(found) == 1, info
    return found[0].text.strip()


FIRST: dict[str, Any] = {"a": narrow(1, 0, 2), "c": transpose(0, 1)}
EXTENDED: dict[str, Any] = {"a": crop(slice(None), slice(0, 3, 2), order=(1, 0))}


@pytest.fixture
def sample() -> Sample:
    return Sample(parse_index(example("json tensor-index").encode()), bytes.fromhex(example("text canonical-bytes")))


def test_the_example_artifact_has_the_id_claimed(sample: Sample) -> None:
    art, _ = sample.opened()
    assert art.index_multihash == example("text index-multihash")
    assert art.artifact_id == example("text artifact-id")
    assert reference.artifact_id(example("json tensor-index").encode(), sample.data) == example("text artifact-id")


@pytest.mark.parametrize(("spec", "info"), [(FIRST, "text view-id"), (EXTENDED, "text view-id-extended")])
def test_the_example_views_have_the_ids_claimed(sample: Sample, spec: dict[str, Any], info: str) -> None:
    art, _ = sample.opened()
    assert art.view(spec).view_id == example(info)
    assert reference.view_id(rows_of(sample.index), chosen_of(sample.index, spec)) == example(info)


def test_the_example_view_has_the_bytes_claimed(sample: Sample) -> None:
    art, _ = sample.opened()
    view = art.view(FIRST)
    assert view.index_bytes.decode() == example("json view-index")
    assert view.logical_layout_hash == hashlib.sha256(example("json view-index").encode() + b"|view").digest()
    out = view.materialize()
    assert bytes(out.region).hex() == example("text view-bytes")
    assert out.view_data_hash == example("text view-data-hash")
    assert reference.view_bytes(rows_of(sample.index), sample.data, chosen_of(sample.index, FIRST)) == bytes(out.region)


def test_the_trailer_matches_its_table(tmp_path: Path, sample: Sample) -> None:
    """Read the file by the table of the page alone."""
    art, _ = sample.opened()
    with tensors.create_tensors(tmp_path / "t", sample.index) as writer:
        writer.write_view(writer.view(), sample.data)
        writer.seal()
    data = (tmp_path / "t").read_bytes()
    trailer = data[-64:]
    total, index_size = int.from_bytes(trailer[:8], "little"), int.from_bytes(trailer[8:16], "little")
    assert trailer[48:] == (1).to_bytes(8, "little") + b"WARPTENS"
    assert data[:total] == sample.data
    start = -(-total // 8) * 8
    leaves, index = data[start : start + 32], data[-64 - index_size : -64]
    assert leaves == hashlib.sha256(sample.data).digest()
    assert index == encode_index(sample.index) == art.index_bytes
    assert trailer[16:48] == hashlib.sha256(leaves + index).digest()
    assert len(data) == start + 32 + index_size + 64


def test_a_view_file_matches_its_section(tmp_path: Path, sample: Sample) -> None:
    """Write the file by the words of the page alone."""
    art, _ = sample.opened()
    art.save_view(art.view(FIRST), tmp_path / "kept").close()
    data = bytes.fromhex(example("text view-bytes"))
    leaf = hashlib.sha256(data).digest()
    index = example("json view-index").encode()
    names = (example("text index-multihash") + example("text view-id")).encode()
    sizes = len(data).to_bytes(8, "little") + len(index).to_bytes(8, "little")
    digest = hashlib.sha256(leaf + index + names).digest()
    trailer = sizes + digest + (1).to_bytes(8, "little") + b"WARPVIEW"
    assert (tmp_path / "kept").read_bytes() == data + leaf + index + names + trailer


def test_space_ids_are_those_of_the_page(sample: Sample) -> None:
    art, _ = sample.opened()
    assert art.view().space_id == art.index_multihash
    assert art.view(FIRST).space_id == example("text view-id")
    some = art.view(FIRST, names=["c", "a"])
    assert some.subset_hash == reference.subset_hash(["a", "c"])
    layout = hashlib.sha256(some.index_bytes + b"|view").digest()
    selection = reference.selection_hash(example("text view-id"), some.subset_hash)
    digest = hashlib.sha256(art.index_multihash.encode() + selection + layout).digest()
    assert some.space_id == reference.multihash(digest)
    assert some.space_id != art.view(FIRST, names=["a", "c"]).space_id


def test_the_table_of_types_matches_the_code() -> None:
    text = SPEC.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(torch\.\w+)` \| (\d+) \| (?:`(\w+)`)? ?\|$", text, re.MULTILINE)
    assert rows == [(dtype.name, str(dtype.item_bytes), dtype.safetensors) for dtype in DTYPES]


@pytest.mark.parametrize(
    ("sentence", "limit"),
    [
        ("| index | {} bytes |", limits.MAX_TENSOR_INDEX_BYTES),
        ("| tensors | {} |", limits.MAX_TENSORS),
        ("| dimensions | {} |", limits.MAX_TENSOR_DIMS),
        ("| name of a tensor | {} bytes |", limits.MAX_TENSOR_NAME_BYTES),
        ("| header of a safetensors file | {} bytes |", limits.MAX_SAFETENSORS_HEADER_BYTES),
        ("| files of a directory | {} |", limits.MAX_TENSOR_FILES),
        ("| operations for a tensor | {} |", limits.MAX_VIEW_OPS),
        ("| request cost | {} bytes |", reads._REQUEST_COST_BYTES),
        ("| scratch | {} bytes |", reads._SCRATCH_BYTES),
        ("| length | {} bytes |", reads.PIECE_BYTES),
        ("and there are more than {} blocks", reads._MAX_BLOCK_READS),
        ("At most {} ranges", extents._MAX_REPORTED_RANGES),
        ("peers by {}", peer._CONNECTIONS),
        ("by default {} bytes in total", transfer._STAGING_BYTES),
        ("at least {} such leaves", cuda_verify._MIN_DEVICE_LEAVES),
        ("longer than {} bytes is 416", limits.MAX_PEER_RANGE_BYTES),
        ("the size of a header ({} bytes, status 431)", limits.MAX_PEER_HEADER_BYTES),
        ("| ranges of a partial file | {} |", limits.MAX_REPLICA_EXTENTS),
        ("the default request cost is {} bytes", reader._STORE_REQUEST_COST_BYTES),
        ("A span of {} bytes or more begins a shard", shards._ALONE_BYTES),
        ("every {} bytes of it begin another", shards.SHARD_BYTES),
        ("| index blob of published tensors | {} bytes |", 2 * limits.MAX_TENSOR_INDEX_BYTES),
    ],
)
def test_limits_match_the_code(sentence: str, limit: int) -> None:
    assert sentence.format(f"{limit:,}") in SPEC.read_text(encoding="utf-8")


def test_every_public_name_is_in_the_reference() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    assert not [name for name in tensors.__all__ if not re.search(rf"`{name}\b|{name}\(", text)]


def test_the_examples_of_the_reference_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    signs = ("import ", "with ", "art.")
    shown = [block for block in blocks(REFERENCE, "python") if any(sign in block.text for sign in signs)]
    assert len(shown) == 7
    for block in shown:
        exec(compile("\n" * (block.line - 1) + block.text, str(REFERENCE), "exec", dont_inherit=True), names)  # noqa: S102


def test_numpy_is_the_only_requirement() -> None:
    """Every other third-party import fails, and `ml_dtypes` is needed only for arrays of its types."""
    code = (
        "import sys\n"
        "class OnlyNumpy:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        top = name.partition('.')[0]\n"
        "        if top not in {*sys.stdlib_module_names, 'warpdata', 'numpy'} and not top.startswith('_'):\n"
        "            raise ModuleNotFoundError(f'No module named {top!r}', name=top)\n"
        "for name in [name for name in sys.modules if name.partition('.')[0] in ('torch', 'xxhash')]:\n"
        "    del sys.modules[name]\n"
        "sys.meta_path.insert(0, OnlyNumpy())\n"
        "import warpdata.tensors as t, numpy as np, tempfile, pathlib\n"
        "home = pathlib.Path(tempfile.mkdtemp())\n"
        "art = t.write_tensors(home / 'x', {'a': np.arange(6).reshape(2, 3)})\n"
        "print(art.view({'a': t.transpose(0, 1)}).materialize()['a'].tolist())\n"
        "art.save_safetensors(home / 'x.safetensors')\n"
        "print(t.open_tensors(home / 'x.safetensors')['a'][1].numpy().tolist(), art.verify())\n"
        "index = t.pack_index({'h': ('torch.bfloat16', (2,))})\n"
        "with t.create_tensors(home / 'y', index) as writer:\n"
        "    writer.write_view(writer.view(), bytes(4))\n"
        "    half = writer.seal()\n"
        "try: half['h'].numpy()\n"
        "except ImportError as error: print(error.kind)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["[[0, 3], [1, 4], [2, 5]]", "[3, 4, 5] []", "missing_extra"], done.stderr
