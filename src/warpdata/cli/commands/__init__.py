"""One module per command, imported when the command runs."""
