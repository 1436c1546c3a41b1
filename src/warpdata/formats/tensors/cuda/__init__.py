"""Views in the memory of a CUDA device: driver, streams, pinned memory, transfer and verification."""
