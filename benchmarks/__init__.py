"""Measurements against peers, side by side in one run. `python -m benchmarks --help` tells the rest."""
