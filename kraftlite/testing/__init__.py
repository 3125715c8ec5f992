"""A cluster of real nodes inside a test: `Cluster` for asyncio, `SyncCluster` for everybody else."""

from kraftlite.testing.cluster import CLIENTS, Cluster, SyncCluster
from kraftlite.testing.conditions import NOBODY, SOMEBODY, PartitionView, Who, other_than
from kraftlite.testing.errors import ClusterError, WaitTimeout

__all__ = [
    "CLIENTS",
    "NOBODY",
    "SOMEBODY",
    "Cluster",
    "ClusterError",
    "PartitionView",
    "SyncCluster",
    "WaitTimeout",
    "Who",
    "other_than",
]
