"""Streams for the loops of other libraries: Lightning, Hugging Face, torchdata and Grain.

Each is a few lines over `Dataset.stream`, and needs its library only when it is called.
"""

from warpdata.loaders.sample_sources import grain_source, hf_iterable
from warpdata.loaders.training_loops import lightning_data, torch_samples, torchdata_node

__all__ = ["grain_source", "hf_iterable", "lightning_data", "torch_samples", "torchdata_node"]
