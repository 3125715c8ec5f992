"""The metadata quorum: Raft with pull-based replication (KIP-595). `core` decides, `driver` waits and performs."""
