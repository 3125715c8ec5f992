"""Data replication: leaders that count, followers that pull. `*_core` decides, `*_driver` waits and performs."""
