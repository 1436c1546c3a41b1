"""Scenarios on recorded episodes: windows, opening, remote reads, and recording."""
