"""Plans where the replicas of a broker go that leaves its cluster. Who asks and carries it out is elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kraftlite.client.errors import ClientError

Partition = tuple[str, int]
_NAMED: Final = 10
"""Partitions that a message names."""


def planned_moves(
    held: Mapping[Partition, Sequence[int]], leaving: int, brokers: Collection[int], *, fewer_replicas: bool = False
) -> dict[Partition, list[int]]:
    """The replicas that each partition with one on `leaving` gets: the same, and in the place of `leaving` the one of `brokers`
    that has the fewest, so that the order of preference stays.

    `held`: the replicas of all partitions. `fewer_replicas`: where no broker is left, a partition goes on with one replica less,
    if it has another. Raises ClientError that names the partitions for which there is no place.
    """
    load = Counter({broker: 0 for broker in brokers if broker != leaving})
    load.update(broker for replicas in held.values() for broker in replicas if broker in load)
    moves: dict[Partition, list[int]] = {}
    stuck: list[str] = []
    for partition, replicas in sorted(held.items()):
        if leaving not in replicas:
            continue
        free = [broker for broker in load if broker not in replicas]
        others = [broker for broker in replicas if broker != leaving]
        if free:
            chosen = min(free, key=lambda broker: (load[broker], broker))
            load[chosen] += 1
            moves[partition] = [chosen if broker == leaving else broker for broker in replicas]
        elif fewer_replicas and others:
            moves[partition] = others
        else:
            stuck.append("{}-{}".format(*partition))
    if stuck:
        raise ClientError(
            f"broker {leaving} cannot leave: {named(stuck)} would have more replicas than there are other brokers; add a broker "
            "before, or allow fewer replicas"
        )
    return moves


def waited_for(held: Mapping[Partition, Sequence[int]], leaving: int, brokers: Collection[int]) -> list[int]:
    """The brokers, none of `brokers`, that have replicas of the same partitions as `leaving`: a move ends when all replicas of
    the partition are in sync, so that it waits for them (KIP-455)."""
    shared = {broker for replicas in held.values() if leaving in replicas for broker in replicas}
    return sorted(shared - {leaving, *brokers})


def named(items: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return ", ".join(items[:_NAMED]) + more
