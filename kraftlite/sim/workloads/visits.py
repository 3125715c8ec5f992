"""The catalogue of the workloads that a seed may have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.history import History
from kraftlite.sim.workloads import admin, groups, logs, sessions, stranger

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kraftlite.sim.client import SimClient
    from kraftlite.sim.cluster import SimCluster

Visit = Callable[["SimCluster", History, Sequence[TopicPartition]], Iterable[tuple["SimClient", "Coroutine[None, None, None]"]]]
"""Given the cluster, the history and the partitions of the shape: each client with what it runs until `stopping` is set on it."""

VISITS: Final[tuple[Visit, ...]] = (stranger.visit, groups.visit, admin.visit, logs.visit, sessions.visit)
