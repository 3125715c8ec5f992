"""A local cluster of real node processes on loopback."""
