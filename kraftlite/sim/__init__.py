"""The whole cluster in one process on virtual time, with faults chosen by a seed, and the checks that watch it."""
