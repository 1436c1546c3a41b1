"""Payload kinds: what a dataset version carries. Tables, artifacts, episodes and tensors."""
