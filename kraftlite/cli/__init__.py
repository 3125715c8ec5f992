"""The command line. Modules are imported when their command runs, so that `--help` is instant."""
