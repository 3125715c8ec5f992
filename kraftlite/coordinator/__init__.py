"""Consumer groups and their offsets: the core that decides, and the driver that keeps it in `__consumer_offsets`."""
