"""A cluster of real nodes inside a test: `Cluster` for asyncio, `SyncCluster` for everybody else; and the pytest plugin.

Nothing is imported before it is used: pytest imports the plugin, and with it this package, in every run of an environment.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftlite.testing.chaos import Chaos
    from kraftlite.testing.cluster import CLIENTS, Cluster, SyncCluster
    from kraftlite.testing.conditions import NOBODY, SOMEBODY, PartitionView, Who, other_than
    from kraftlite.testing.errors import ClusterError, WaitTimeout

__all__ = [
    "CLIENTS",
    "NOBODY",
    "SOMEBODY",
    "Chaos",
    "Cluster",
    "ClusterError",
    "PartitionView",
    "SyncCluster",
    "WaitTimeout",
    "Who",
    "other_than",
]

_MODULES = {
    "chaos": ("Chaos",),
    "cluster": ("CLIENTS", "Cluster", "SyncCluster"),
    "conditions": ("NOBODY", "SOMEBODY", "PartitionView", "Who", "other_than"),
    "errors": ("ClusterError", "WaitTimeout"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
