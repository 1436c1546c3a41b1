"""Scenarios over a network like that of a cloud: latency, and a bandwidth for each connection."""
