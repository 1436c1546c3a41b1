"""Publish a checkpoint and load it on four tensor-parallel ranks, each with a quarter of every matrix."""

from __future__ import annotations

import numpy as np

import warpdata as wd

DATASET = "examples/model"
WORLD = 4


def main() -> None:
    rng = np.random.default_rng(0)
    weights = {f"layers.{n}.up": rng.standard_normal((1024, 512), np.float32) for n in range(4)}
    weights |= {f"layers.{n}.down": rng.standard_normal((512, 1024), np.float32) for n in range(4)}
    wd.DatasetBuilder(DATASET).add_tensors("weights", weights).publish("step 1000")

    tensors = wd.dataset(DATASET).tensors("weights")
    x = rng.standard_normal(512).astype(np.float32)
    total = np.zeros(512, np.float32)
    for rank in range(WORLD):
        rows = wd.narrow(dim=0, start=rank * 256, length=256)
        columns = wd.narrow(dim=1, start=rank * 256, length=256)
        cuts = {"layers.0.up": rows, "layers.0.down": columns}
        view = tensors.view(cuts, names=list(cuts))
        if rank == 0:
            print(view.explain())
        part = view.materialize(verify=True)
        total += part["layers.0.down"] @ (part["layers.0.up"] @ x)
    expected = weights["layers.0.down"] @ (weights["layers.0.up"] @ x)
    assert np.allclose(total, expected, rtol=1e-3, atol=1e-2)
    print(f"{WORLD} ranks computed one layer from their slices")

    tuned = {**weights, "layers.3.up": weights["layers.3.up"] * np.float32(1.01)}
    done = wd.DatasetBuilder(DATASET).add_tensors("weights", tuned).publish("step 2000")
    whole = sum(array.nbytes for array in weights.values())
    print(f"the next checkpoint sent {done.uploaded_bytes / whole:.0%} of the weights")


if __name__ == "__main__":
    main()
