"""The state topic itself: created when it is first needed, and refused when it would lose what it is for.

Source: SX-01.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Final

from kraftlite.client.admin import create_topic, describe_configs
from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.client.routing import RetryBudget
from kraftlite.exactly_once.records import MAX_RECORD_BYTES, STATE_PARTITIONS
from kraftlite.model.errors import ErrorCode
from kraftlite.model.limits import KIB, MIB
from kraftlite.model.messages.choices import ConfigResourceType

REPLICAS: Final = 3
VERIFICATION: Final = "transaction.partition.verification.enable"
ANSWER_MS: Final = 3_000
"""The time that each broker has to tell a setting of its own before the others are asked."""
_NEEDED: Final = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}
_FOREIGN: Final = (
    ". The sink has not created it: where brokers have auto.create.topics.enable=true, any client that asks for a topic may. "
    "Delete it if there is nothing in it, or name another one as kraftlite.sink.state.topic"
)
_known: weakref.WeakKeyDictionary[KafkaClient, dict[str, tuple[int, ...]]] = weakref.WeakKeyDictionary()
"""The partitions of state topics that were looked at, by client."""


def ensure_state_topic(client: KafkaClient, topic: str) -> tuple[int, ...]:
    """The partitions of the topic, which is created unless it is there. Looked at once by each client. Raises ClientError when
    its configuration would lose decisions, or it cannot be created."""
    known = _known.setdefault(client, {})
    if topic not in known:
        if topic not in client.describe([topic]):
            _create(client, topic)
        partitions = client.partitions_for(topic)
        with ClusterClient(client.settings) as cluster:
            _check(_configs(cluster, topic), topic, partitions)
            _check_verification(cluster)
        known[topic] = partitions
    return known[topic]


def _create(client: KafkaClient, topic: str) -> None:
    """With fewer replicas where there are fewer brokers. Brokers and controllers may come and go meanwhile."""
    with ClusterClient(client.settings) as cluster:
        budget = RetryBudget(cluster.settings, "state topic of the sink")
        while True:
            replicas = min(REPLICAS, len(cluster.brokers()))
            config = {
                **_NEEDED,
                "min.insync.replicas": "2" if replicas >= REPLICAS else "1",
                "max.message.bytes": str(MAX_RECORD_BYTES + 64 * KIB),
                "segment.bytes": str(16 * MIB),
            }
            try:
                create_topic(cluster, topic, STATE_PARTITIONS, replicas, config)
            except RequestRefused as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    return
                if not error.code.retriable and error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
                    raise ClientError(f"the sink's state topic {topic} cannot be created: {error}", error.code) from error
                budget.pause(str(error), error.code)
                cluster.look_again()
            else:
                return


def _configs(cluster: ClusterClient, topic: str) -> dict[str, str | None]:
    """A broker may learn of a new topic a little later than others."""
    budget = RetryBudget(cluster.settings, "state topic of the sink")
    while True:
        try:
            return {str(it.name): it.value for it in describe_configs(cluster, ConfigResourceType.TOPIC, topic)}
        except RequestRefused as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            budget.unknown(topic)


def _check(found: dict[str, str | None], topic: str, partitions: tuple[int, ...]) -> None:
    for name, value in _NEEDED.items():
        if found.get(name) != value:
            raise ClientError(f"the sink's state topic {topic} has {name}={found.get(name)}: {value} is needed{_FOREIGN}")
    if len(partitions) < 2 or partitions != tuple(range(len(partitions))):
        raise ClientError(f"the sink's state topic {topic} has {len(partitions)} partitions: at least 2 are needed{_FOREIGN}")


def _check_verification(cluster: ClusterClient) -> None:
    """Raises ClientError for a broker that is able to verify what is written in transactions, and told not to. One that does not
    let this user see its configuration is believed."""
    for broker, value in told_by_brokers(cluster, VERIFICATION):
        if value == "false":
            raise ClientError(
                f"broker {broker} has {VERIFICATION}=false: a late write could become a part of the next transaction; exactly "
                "once needs true, which is the default"
            )


def told_by_brokers(cluster: ClusterClient, name: str) -> Iterator[tuple[int, str | None]]:
    """Ask each live broker for a setting of its own; None: it does not let this user see it. One that is silent is asked again,
    after the others, until the cluster takes it for dead."""
    budget = RetryBudget(cluster.settings, name)
    left = set(cluster.brokers())
    while left:
        for broker in sorted(left):
            try:
                yield broker, _broker_config(cluster, broker, name)
            except RequestRefused as error:
                if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                    raise
                yield broker, None
            except ClientError as error:
                if error.code is not None:
                    raise
                continue
            left.discard(broker)
        if left:
            budget.pause(f"broker {min(left)} does not answer")
            cluster.look_again()
            left &= set(cluster.brokers())


def _broker_config(cluster: ClusterClient, broker: int, name: str) -> str | None:
    entries = describe_configs(cluster, ConfigResourceType.BROKER, str(broker), timeout_ms=ANSWER_MS)
    return next((it.value for it in entries if it.name == name), None)


def broker_limit(client: KafkaClient) -> int | None:
    """The longest transaction timeout that a broker allows, in ms; None when it does not tell."""
    with ClusterClient(client.settings) as cluster:
        value = next((value for _broker, value in told_by_brokers(cluster, "transaction.max.timeout.ms")), None)
    return int(value) if value is not None and value.isdigit() else None
