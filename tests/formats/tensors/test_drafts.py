"""If this fails, one of two writers of a draft silently loses its bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.tensors.artifacts import Sample, array_of, samples, specs
from warpdata.errors import ConflictError, PartialCoverageError
from warpdata.formats.tensors.in_memory import written_ranges
from warpdata.tensors import create_tensors, narrow, open_arrays, transpose


@given(st.data(), samples(min_tensors=1))
def test_a_draft_keeps_the_bytes_that_were_written_first(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample
) -> None:
    """Every write has bytes of one of two artifacts. The model is the value of every written byte."""
    other = Sample(sample.index, bytes(byte ^ data.draw(st.sampled_from([0, 1])) for byte in sample.data))
    sides = [sample.opened()[0], other.opened()[0]]
    model: dict[int, int] = {}
    path = tmp_path_factory.mktemp("draft") / "t"
    with create_tensors(path, sample.index) as writer:
        for _ in range(data.draw(st.integers(1, 4))):
            side = data.draw(st.integers(0, 1))
            names = tuple(data.draw(st.lists(st.sampled_from(sample.index.names()), unique=True, min_size=1)))
            spec = data.draw(specs(sample.index)) or None
            new = sides[side].view(spec, names=names).materialize().region
            view = writer.view(spec, names=names)
            bytes_of = (sample, other)[side].data
            written = {at: bytes_of[at] for s, e in written_ranges(view.plan) for at in range(s, e)}
            if any(model.get(at, value) != value for at, value in written.items()):
                with pytest.raises(ConflictError):
                    writer.write_view(view, new)
            else:
                writer.write_view(view, new)
                model |= written
        try:
            sealed = writer.seal()
        except PartialCoverageError:
            return
    expected = bytearray(sample.index.total_size)
    for at, value in model.items():
        expected[at] = value
    for entry in sample.index:
        assert sealed[entry.name].numpy().tobytes() == array_of(entry, bytes(expected)).tobytes()
    assert bytes(sealed.view().materialize().region) == bytes(expected)
    sealed.close()


def test_a_refused_write_changes_nothing(tmp_path: Path) -> None:
    right = np.arange(12, dtype=np.float32).reshape(3, 4)
    index = open_arrays({"a": right, "b": right}).index
    with create_tensors(tmp_path / "t", index) as writer:
        first = writer.view({"a": narrow(0, 0, 2)}, names=("a",))
        writer.write_view(first, {"a": right[:2]})
        writer.write_view(first, {"a": right[:2]})
        both = writer.view({"b": transpose(0, 1), "a": narrow(1, 1, 2)}, names=("b", "a"))
        with pytest.raises(ConflictError, match="'a'") as caught:
            writer.write_view(both, {"b": right.T, "a": right[:, 1:3] + 1})
        assert caught.value.hint
        with pytest.raises(PartialCoverageError):
            writer.seal()
        writer.write_view(writer.view(names=("b",)), {"b": right * 2})
        writer.write_view(writer.view(names=("a",)), {"a": right})
        sealed = writer.seal()
    np.testing.assert_array_equal(sealed["a"].numpy(), right)
    np.testing.assert_array_equal(sealed["b"].numpy(), right * 2)
