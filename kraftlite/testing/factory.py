"""The type of the fixture `kafka_cluster_factory`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kraftlite.testing.cluster import SyncCluster


class ClusterFactory(Protocol):
    """Starts a cluster of the test's own; the fixture closes it when the test ends."""

    def __call__(
        self,
        *,
        controllers: int = 3,
        brokers: int = 3,
        combined: bool = False,
        config: Mapping[str, object] | None = None,
        secure: bool = False,
    ) -> SyncCluster:
        """All nodes run when it returns. Raises ValueError and ClusterError, as `SyncCluster` does."""
