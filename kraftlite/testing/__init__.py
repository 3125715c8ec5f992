"""A cluster of real nodes inside a test: `Cluster` for asyncio, `SyncCluster` for everybody else; and the pytest plugin.

Nothing is imported before it is used: pytest imports the plugin, and with it this package, in every run of an environment. For
the same reason `python -O` is refused (ImportError) when a name is first used, and not when the package is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kraftlite import require_assertions

if TYPE_CHECKING:
    from kraftlite.testing.base import NodeInfo
    from kraftlite.testing.chaos import Chaos
    from kraftlite.testing.cluster import Cluster, SyncCluster
    from kraftlite.testing.conditions import NOBODY, SOMEBODY, PartitionView, Who, other_than
    from kraftlite.testing.errors import ClusterError, WaitTimeout
    from kraftlite.testing.factory import ClusterFactory
    from kraftlite.testing.faults import CLIENTS, Ends, Injected
    from kraftlite.testing.processes import ProcessFaults
    from kraftlite.testing.transactions import TransactionView

__all__ = [
    "CLIENTS",
    "NOBODY",
    "SOMEBODY",
    "Chaos",
    "Cluster",
    "ClusterError",
    "ClusterFactory",
    "Ends",
    "Injected",
    "NodeInfo",
    "PartitionView",
    "ProcessFaults",
    "SyncCluster",
    "TransactionView",
    "WaitTimeout",
    "Who",
    "other_than",
]

_MODULES = {
    "chaos": ("Chaos",),
    "base": ("NodeInfo",),
    "cluster": ("Cluster", "SyncCluster"),
    "conditions": ("NOBODY", "SOMEBODY", "PartitionView", "Who", "other_than"),
    "errors": ("ClusterError", "WaitTimeout"),
    "factory": ("ClusterFactory",),
    "faults": ("CLIENTS", "Ends", "Injected"),
    "processes": ("ProcessFaults",),
    "transactions": ("TransactionView",),
}


if not TYPE_CHECKING:  # a type checker must not believe that there is every name

    def __getattr__(name):
        for module, names in _MODULES.items():
            if name in names:
                require_assertions()
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
