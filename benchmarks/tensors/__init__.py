"""Scenarios on tensors: CPU, GPU, and remote reads."""
