"""The question that a policy is asked: may this topic be created, may these configs be changed (KIP-108, KIP-133).

A policy is Python: a callable, or a class with `validate`, named by `create.topic.policy.class.name` or
`alter.config.policy.class.name` as `module:name`. docs/PUBLIC.md describes the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias


class PolicyKind(StrEnum):
    CREATE_TOPIC = "create.topic.policy.class.name"
    ALTER_CONFIG = "alter.config.policy.class.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToCreate:
    """A topic that a client wants. Either it names `assignments`, which are the brokers of each partition, or the numbers are
    there, with the defaults of the cluster where the client named none. `configs` are those that the client set."""

    topic: str
    num_partitions: int | None
    replication_factor: int | None
    assignments: Mapping[int, tuple[int, ...]] | None
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> PolicyKind:
        return PolicyKind.CREATE_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsToAlter:
    """The configs of a resource that a client changes, with their new values; None: it is deleted. `resource_type`: TOPIC,
    BROKER, GROUP or CLIENT_METRICS."""

    resource_type: str
    resource_name: str
    configs: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def kind(self) -> PolicyKind:
        return PolicyKind.ALTER_CONFIG


PolicyQuestion: TypeAlias = TopicToCreate | ConfigsToAlter
