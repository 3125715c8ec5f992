"""Moves every replica off a broker that is to leave its cluster, by reassignments (KIP-455)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from kraftlite.client.admin import Partition, alter_reassignments, list_reassignments
from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError
from kraftlite.client.moves import named, planned_moves, waited_for
from kraftlite.model.errors import ErrorCode

_POLL_S: Final = 0.2
_SETTLING_S: Final = 5.0
_AT_ONCE: Final = 1_000
"""Partitions of one request."""


def held_by(cluster: ClusterClient, broker: int) -> list[Partition]:
    """The partitions that have a replica on this broker."""
    return [partition for partition, replicas in _replicas(cluster).items() if broker in replicas]


def drain(
    cluster: ClusterClient,
    leaving: int,
    brokers: Collection[int],
    *,
    fewer_replicas: bool = False,
    timeout_s: float,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Return when no partition has a replica on the broker `leaving`; `brokers` take them. `say` is told how many are left.

    Raises ClientError when there is no place, when the cluster refuses, or when it is not done in `timeout_s`; what was begun
    goes on then.
    """
    deadline, last = time.monotonic() + timeout_s, -1
    for absent in waited_for(_replicas(cluster), leaving, brokers):
        say(f"broker {absent} does not run: partitions that it shares with broker {leaving} have moved when it is back in sync")
    asked: dict[Partition, float] = {}
    while True:
        now = time.monotonic()
        under_way = {one for one, it in list_reassignments(cluster).items() if leaving in map(int, it.removing_replicas)}
        asked.update(dict.fromkeys(under_way, now))
        replicas = _replicas(cluster)
        held = [partition for partition, found in replicas.items() if leaving in found]
        if not held:
            return
        if len(held) != last:
            last = len(held)
            say(f"{last} partition{'' if last == 1 else 's'} to move off broker {leaving}")
        # The broker that is asked may learn a little later what has been done about a partition.
        settled = {one: found for one, found in replicas.items() if now - asked.get(one, -math.inf) > _SETTLING_S}
        moves = planned_moves(settled, leaving, brokers, fewer_replicas=fewer_replicas)
        _move(cluster, moves)
        asked.update(dict.fromkeys(moves, now))
        if now >= deadline:
            left = named([f"{topic}-{index}" for topic, index in held])
            raise ClientError(f"broker {leaving} still has replicas of {left} after {timeout_s:g} s; they are being moved on")
        time.sleep(_POLL_S)


def _move(cluster: ClusterClient, moves: Mapping[Partition, Sequence[int]]) -> None:
    wanted = sorted(moves)
    for start in range(0, len(wanted), _AT_ONCE):
        asked = {partition: moves[partition] for partition in wanted[start : start + _AT_ONCE]}
        for (topic, index), (code, message) in alter_reassignments(cluster, asked).items():
            if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):  # deleted meanwhile
                raise ClientError(f"{topic}-{index} cannot be moved to {moves[topic, index]}: {message or code.name}", code)


def _replicas(cluster: ClusterClient) -> dict[Partition, list[int]]:
    return {
        (name, int(part.partition_index)): [int(broker) for broker in part.replica_nodes]
        for name, topic in cluster.topics().items()
        for part in topic.partitions
    }
