"""Work and reads on a Ray cluster, beside what Ray does alone. They need Ray: run them from `.venv-ray`."""
