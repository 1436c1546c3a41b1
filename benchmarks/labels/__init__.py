"""Labels of other tools: import and export beside the libraries that read their formats."""
