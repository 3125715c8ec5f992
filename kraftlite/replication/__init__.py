"""Data replication: leaders that count, followers that pull. `core` modules decide, drivers wait and perform."""
