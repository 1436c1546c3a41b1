"""If this fails, somebody who follows the tensor pages to the letter gets other bytes, ids or answers than we do."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks
from tests.formats.tensors.artifacts import Sample, chosen_of, rows_of
from tests.reference import tensor_views as reference
from warpdata import limits, tensors
from warpdata.formats.tensors.dtypes import DTYPES
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


def test_the_trailer_is_as_described(tmp_path: Path, sample: Sample) -> None:
    """A naive reader, from the table of the page."""
    art, _ = sample.opened()
    with tensors.create_tensors(tmp_path / "t", sample.index) as draft:
        draft.write_view(draft.view(), sample.data)
        draft.seal()
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


def test_the_table_of_types_is_the_real_one() -> None:
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
        ("| files of a folder | {} |", limits.MAX_TENSOR_FILES),
        ("| operations for a tensor | {} |", limits.MAX_VIEW_OPS),
        ("expressed in bytes ({} unless told)", limits.VIEW_REQUEST_COST_BYTES),
        ("may be ({} bytes unless told)", limits.VIEW_SCRATCH_BYTES),
        ("and there are more than {}.", limits.MAX_BLOCK_READS),
        ("At most {} ranges", limits.MAX_MISSING_RANGES),
        ("may be ({} bytes at most, unless told)", limits.VIEW_PIECE_BYTES),
        ("stores and peers from {}", limits.VIEW_THREADS),
        ("of one size, {} bytes of them together", limits.VIEW_STAGING_BYTES),
        ("if there are at least {} of them", limits.VIEW_DEVICE_CHECK_LEAVES),
        ("longer than {} bytes is 416", limits.MAX_PEER_RANGE_BYTES),
        ("| ranges of a partial file | {} |", limits.MAX_REPLICA_EXTENTS),
        ("a request costs {} bytes unless told", limits.VIEW_STORE_REQUEST_COST_BYTES),
        ("A room of {} bytes or more begins a shard", limits.TENSOR_ALONE_BYTES),
        ("every {} bytes of it begin another", limits.TENSOR_SHARD_BYTES),
        ("| index blob of published tensors | {} bytes |", 2 * limits.MAX_TENSOR_INDEX_BYTES),
    ],
)
def test_limits_are_those_of_the_code(sentence: str, limit: int) -> None:
    assert sentence.format(f"{limit:,}") in SPEC.read_text(encoding="utf-8")


def test_every_public_name_is_in_the_reference() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    assert not [name for name in tensors.__all__ if not re.search(rf"`{name}\b|{name}\(", text)]


def test_the_examples_of_the_reference_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    signs = ("import ", "with ", "art.")
    shown = [block for block in blocks(REFERENCE, "python") if any(sign in block.text for sign in signs)]
    assert len(shown) == 6
    for block in shown:
        exec(compile("\n" * (block.line - 1) + block.text, str(REFERENCE), "exec", dont_inherit=True), names)  # noqa: S102


def test_numpy_is_all_it_needs() -> None:
    """With everything else of ours hidden, and without ml_dtypes until such a tensor becomes an array."""
    import subprocess
    import sys

    code = (
        "import sys\n"
        "hidden = ('pyarrow', 'duckdb', 'obstore', 'msgspec', 'click', 'rich', 'xxhash', 'ml_dtypes', 'safetensors')\n"
        "for name in (*hidden, 'torch'): sys.modules[name] = None\n"
        "import warpdata.tensors as t, numpy as np, tempfile, pathlib\n"
        "home = pathlib.Path(tempfile.mkdtemp())\n"
        "art = t.write_tensors(home / 'x', {'a': np.arange(6).reshape(2, 3)})\n"
        "print(art.view({'a': t.transpose(0, 1)}).materialize()['a'].tolist())\n"
        "index = t.pack_index({'h': ('torch.bfloat16', (2,))})\n"
        "with t.create_tensors(home / 'y', index) as draft:\n"
        "    draft.write_view(draft.view(), bytes(4))\n"
        "    half = draft.seal()\n"
        "try: half['h'].numpy()\n"
        "except ImportError as error: print(error.kind)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["[[0, 3], [1, 4], [2, 5]]", "missing_extra"], done.stderr
