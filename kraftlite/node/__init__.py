"""One process: storage format, composition root, signals and exit codes."""
