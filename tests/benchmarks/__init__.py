"""Tests of the benchmark harness, the stored results and the generated report."""
