"""Train an image classifier on a published dataset, stop in the middle of an epoch, and resume.

The images show a bright square in the left or the right half. The checkpoint holds the weights and the position
of the stream, so the resumed run sees exactly the samples that the first run has not seen.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import warpdata as wd
from warpdata import ingest

DATASET = "examples/squares"
BATCH_SIZE = 32


def make_images(directory: Path) -> None:
    """Write 200 images for each class and split, in the layout split/class/number.png."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 200), ("test", 50)):
        for label, left in (("left", 2), ("right", 18)):
            target = directory / split / label
            target.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 100, (28, 28, 3), dtype=np.uint8)
                top, shift = rng.integers(2, 18), rng.integers(0, 4)
                pixels[top : top + 8, left + shift : left + shift + 6] = 255
                Image.fromarray(pixels).save(target / f"{number:03}.png")


def to_sample(row: dict[str, Any]) -> dict[str, Any]:
    """Turn a decoded row into the arrays the model needs. Runs in the loader's workers."""
    image = row["image"].astype(np.float32).transpose(2, 0, 1) / 255
    return {"image": image, "target": np.int64(row["label"] == "right")}


def open_loader(dataset: wd.Dataset, split: str) -> Any:
    return dataset.to_torch(
        columns=["image", "label"],
        filter=f"split = '{split}'",
        batch_size=BATCH_SIZE,
        shuffle=split == "train",
        seed=1,
        transform=to_sample,
    )


def train(model: torch.nn.Module, batches: Any, limit: int | None = None) -> int:
    """Run up to `limit` steps and return the number of samples seen."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    seen = 0
    for step, batch in enumerate(batches):
        loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["target"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(batch["target"])
        if limit is not None and step + 1 == limit:
            break
    return seen


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 28 * 28, 2))


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        make_images(Path(scratch, "squares"))
        done = ingest.imagefolder(DATASET, Path(scratch, "squares")).publish("squares", label="v1")
    print(f"published {DATASET} as {done.version[:12]}")

    dataset = wd.dataset(f"{DATASET}@v1")
    model = make_model()
    loader = open_loader(dataset, "train")
    batches = loader.epoch(0)
    seen = train(model, batches, limit=5)
    batches.close()
    checkpoint = {"model": model.state_dict(), "data": loader.state_dict()}
    print(f"stopped after {seen} samples")

    model = make_model()
    model.load_state_dict(checkpoint["model"])
    loader = open_loader(dataset, "train")
    loader.load_state_dict(checkpoint["data"])
    seen += train(model, loader)
    for epoch in (1, 2):
        train(model, loader.epoch(epoch))
    assert seen == 400, f"the first epoch had {seen} samples instead of 400"

    correct = total = 0
    with torch.no_grad():
        for batch in open_loader(dataset, "test").epoch(0):
            correct += int((model(batch["image"]).argmax(1) == batch["target"]).sum())
            total += len(batch["target"])
    print(f"test accuracy {correct / total:.2f} on {total} images")
    assert correct / total > 0.9


if __name__ == "__main__":
    main()
