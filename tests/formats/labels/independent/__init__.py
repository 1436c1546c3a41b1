"""Exports read by other libraries, which are installed in an environment of their own."""
