"""Measurements of warpdata beside its peers. See `python -m benchmarks --help`."""
