"""More rules of what brokers describe: the topics as Metadata shows them, and the resources that have configurations.

Written against docs/spec (CP-08 to CP-10) and KIP-1142, not against `broker`. Each returns what was found and what is so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlite.model.errors import ErrorCode as E
from kraftlite.sim.checkers.model import BROKER, TOPIC, MetadataState
from kraftlite.sim.history import Description

Pairs = Mapping[Any, Any]
LOGGER, METRICS, GROUP = 8, 16, 32


def resources(it: Description, state: MetadataState) -> tuple[Pairs, Pairs]:
    """No types: all of them. Of groups and client metrics only those with configurations of their own."""
    names = {
        TOPIC: [topic.name for topic in state.topics.values()],
        BROKER: [str(broker) for broker, one in state.brokers.items() if not one.fenced],
    }
    names[LOGGER] = names[BROKER]
    for kind in (METRICS, GROUP):
        names[kind] = [name for (known, name), values in state.configs.items() if known == kind and values]
    wanted = {(kind, name): 1 for kind in it.request or names for name in names[kind]}
    found: dict[Any, int] = {}
    for resource in it.found:
        found[resource] = found.get(resource, 0) + 1
    return found, wanted


def metadata(it: Description, state: MetadataState) -> tuple[Pairs, Pairs]:
    """CP-10. The oldest version leaves out replicas that are down, and says so; all say when there is no leader to talk to."""
    oldest = it.request
    found: dict[Any, Any] = {}
    for topic in it.found:
        found[topic.name] = (topic.error, topic.topic_id)
        for one in topic.partitions:
            key = (topic.name, one.partition)
            found[key] = (one.error, one.leader, one.leader_epoch, one.replicas, one.isr, one.offline_replicas)
    alive = {broker for broker, one in state.brokers.items() if not one.fenced}
    wanted: dict[Any, Any] = {}
    for topic_id, known in state.topics.items():
        wanted[known.name] = (E.NONE, topic_id)
        for index, one in known.partitions.items():
            down = tuple(it for it in one.replicas if it not in alive)
            error, leader = E.NONE, one.leader
            replicas, isr = one.replicas, one.isr
            if oldest:
                replicas = tuple(it for it in replicas if it in alive)
                isr = tuple(it for it in isr if it in alive)
                error = E.NONE if (replicas, isr) == (one.replicas, one.isr) else E.REPLICA_NOT_AVAILABLE
            if leader not in alive:
                error, leader = E.LEADER_NOT_AVAILABLE, None
            wanted[known.name, index] = (error, leader, one.leader_epoch, replicas, isr, down)
    return found, wanted
