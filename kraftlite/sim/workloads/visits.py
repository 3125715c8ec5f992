"""The catalogue of the workloads that a run may have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.history import History
from kraftlite.sim.themes import ADMIN, DIRECTORIES, GROUPS, LOGS, MEMBERSHIP, SECURITY, SINK, TRANSACTIONS
from kraftlite.sim.workloads import (
    admin,
    agreements,
    brokers,
    callers,
    cordons,
    deletions,
    directories,
    group_passing,
    groups,
    latest,
    levels,
    listeners,
    logins,
    logs,
    membership,
    minimum,
    moves,
    mutations,
    questions,
    racks,
    removals,
    rights_asked,
    security,
    sessions,
    sink,
    stranger,
    thinning,
    throttles,
    tokens_asked,
    transaction_listing,
    transactions,
    waiting,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kraftlite.sim.client import SimClient
    from kraftlite.sim.cluster import SimCluster

Visitor: TypeAlias = "tuple[SimClient, Coroutine[None, None, None]]"
"""A client, with what it runs until `stopping` is set on it."""
Visit = Callable[["SimCluster", History, Sequence[TopicPartition]], Iterable[Visitor]]
"""Given the cluster, the history and the partitions of the shape."""

IN_ALL: Final[tuple[Visit, ...]] = (stranger.visit, minimum.visit, levels.visit, thinning.visit)
"""In every theme that they name; the seed decides whether they come."""
THEMED: Final[Mapping[str, tuple[Visit, ...]]] = {
    GROUPS: (groups.visit, group_passing.visit),
    ADMIN: (admin.visit, moves.visit, throttles.visit, callers.visit, questions.visit, agreements.visit),
    DIRECTORIES: (directories.visit, cordons.visit),
    LOGS: (logs.visit, sessions.visit, racks.visit, deletions.visit, waiting.visit),
    TRANSACTIONS: (transactions.visit, latest.visit, transaction_listing.visit),
    SINK: (sink.visit,),
    MEMBERSHIP: (membership.visit, brokers.visit, listeners.visit),
    SECURITY: (
        security.visit,
        logins.visit,
        mutations.visit,
        rights_asked.visit,
        tokens_asked.visit,
        removals.visit,
    ),
}
"""By theme: what the runs of that theme have, and no others."""


def visitors(cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]) -> Iterator[Visitor]:
    for visit in (*IN_ALL, *THEMED.get(cluster.theme, ())):
        yield from visit(cluster, history, partitions)
