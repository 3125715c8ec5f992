"""The questions of the group commands to a cluster, asked through librdkafka's admin client; and the columns of Kafka's tool.

Source: TO-27; kafka-consumer-groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click

from kraftlite.cli.common import printable
from kraftlite.cli.kafka import admin_types, kafka_errors, kafka_message, result
from kraftlite.client.errors import ClientError
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import CONSUMER_GROUP_DESCRIBE

REQUEST_TIMEOUT_S = 15.0
MIN_WIDTH = 15

Partition = tuple[str, int]

STATES = {
    "STABLE": "Stable",
    "EMPTY": "Empty",
    "DEAD": "Dead",
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}
"""librdkafka's names → Kafka's."""


def state_name(state: Any) -> str:
    name = str(state.name)
    return STATES.get(name, name.capitalize())


@dataclass(frozen=True)
class MemberView:
    member_id: str
    instance_id: str | None
    host: str
    client_id: str
    partitions: tuple[Partition, ...]
    epoch: int | None = None
    target: tuple[Partition, ...] | None = None
    """The partitions that it will have when the rebalance is over; None in a classic group, which has no such thing."""


@dataclass(frozen=True)
class GroupView:
    """A group as its coordinator describes it. `coordinator`: `host:port (id)`."""

    group: str
    state: str
    strategy: str
    coordinator: str
    members: tuple[MemberView, ...] = field(default=())
    group_epoch: int | None = None
    target_epoch: int | None = None
    """The epoch of the target assignment of a group of the new protocol (KIP-848), where `with_epochs` was asked."""

    @property
    def exists(self) -> bool:
        return self.state != "Dead"


def describe_groups(client: Any, groups: Sequence[str]) -> list[GroupView]:
    """Describe groups in the order asked; one that does not exist is Dead."""
    if not groups:
        return []
    futures = client.describe_consumer_groups(list(groups), request_timeout=REQUEST_TIMEOUT_S)
    views = []
    for group in groups:
        with kafka_errors(f"group {group}"):
            views.append(_view(result(futures[group])))
    return views


def _view(found: Any) -> GroupView:
    node = found.coordinator
    members = []
    for member in found.members:
        assignment = member.assignment
        partitions = () if assignment is None else tuple(sorted((tp.topic, tp.partition) for tp in assignment.topic_partitions))
        members.append(MemberView(member.member_id, member.group_instance_id or None, member.host, member.client_id, partitions))
    return GroupView(
        group=found.group_id,
        state=state_name(found.state),
        strategy=found.partition_assignor,
        coordinator="-" if node is None else f"{node.host}:{node.port}  ({node.id})",
        members=tuple(sorted(members, key=lambda member: member.member_id)),
    )


def with_epochs(bootstrap: str, view: GroupView) -> GroupView:
    """The view with the epochs and targets that librdkafka does not tell; unchanged for a classic group, which has none."""
    from kraftlite.client.connection import code_of
    from kraftlite.local.client import cluster_at

    values = {"group_ids": [view.group], "include_authorized_operations": False}
    try:
        cluster = cluster_at(bootstrap)
        answer = cluster.call_coordinator(
            view.group, CONSUMER_GROUP_DESCRIBE, 1, values, lambda answer: code_of(answer.groups[0])
        )
    except ClientError as error:
        if error.code is None:
            raise
        return view
    (found,) = answer.groups
    if code_of(found) is not ErrorCode.NONE:
        return view
    told = {str(member.member_id): member for member in found.members}
    members = tuple(
        replace(
            member, epoch=int(told[member.member_id].member_epoch), target=_assigned(told[member.member_id].target_assignment)
        )
        if member.member_id in told
        else member
        for member in view.members
    )
    return replace(view, members=members, group_epoch=int(found.group_epoch), target_epoch=int(found.assignment_epoch))


def _assigned(assignment: Any) -> tuple[Partition, ...]:
    return tuple(sorted((str(one.topic_name), int(index)) for one in assignment.topic_partitions for index in one.partitions))


def committed_epochs(client: Any, group: str) -> dict[Partition, int]:
    """The leader epochs that were committed with the group's offsets, where there are any."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    futures = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_TIMEOUT_S)
    with kafka_errors(f"offsets of group {group}"):
        found = result(futures[group])
    epochs = {(tp.topic, tp.partition): tp.leader_epoch for tp in found.topic_partitions}
    return {partition: epoch for partition, epoch in epochs.items() if epoch is not None and epoch >= 0}


def list_groups(client: Any) -> list[tuple[str, str, str]]:
    """(group, state, type), by name. ClickException when a broker could not tell."""
    with kafka_errors():
        found = result(client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S))
    for error in found.errors:
        raise click.ClickException(f"not all groups are known: {kafka_message(error)}")
    return sorted((group.group_id, state_name(group.state), str(group.type.name).capitalize()) for group in found.valid)


def committed_offsets(client: Any, group: str) -> dict[Partition, int]:
    """Return the offsets that the group has committed."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    futures = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_TIMEOUT_S)
    with kafka_errors(f"offsets of group {group}"):
        found = result(futures[group])
    return {(tp.topic, tp.partition): tp.offset for tp in found.topic_partitions if tp.offset >= 0}


def log_offsets(client: Any, partitions: Iterable[Partition], spec: Any) -> dict[Partition, int]:
    """Look up where the logs end, start, or have a timestamp (`OffsetSpec`). A partition that cannot say, or has no such
    offset, is left out."""
    from confluent_kafka import KafkaException, TopicPartition

    wanted = {TopicPartition(topic, index): spec for topic, index in partitions}
    if not wanted:
        return {}
    found = {}
    for tp, future in client.list_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            offset = result(future).offset
        except KafkaException:
            continue
        if offset >= 0:
            found[tp.topic, tp.partition] = offset
    return found


def latest() -> Any:
    return admin_types().OffsetSpec.latest()


def earliest() -> Any:
    return admin_types().OffsetSpec.earliest()


def at_time(timestamp_ms: int) -> Any:
    return admin_types().OffsetSpec.for_timestamp(timestamp_ms)


def columns(header: Sequence[str], rows: Iterable[Sequence[object]], widths: Sequence[int] | None = None) -> None:
    """A table as Kafka's tool prints it: an empty line, then columns of at least `widths` (15); absent values are `-`."""
    texts = [list(header), *[["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]]
    least = [MIN_WIDTH] * len(header) if widths is None else list(widths)
    found = [max(least[i], *(len(row[i]) for row in texts)) for i in range(len(header))]
    click.echo()
    for row in texts:
        click.echo(" ".join(cell.ljust(width) for cell, width in zip(row, found, strict=True)).rstrip())


def selected(client: Any, topics: Sequence[str], known: Iterable[Partition]) -> list[Partition]:
    """The partitions of `--topic t` or `--topic t:0,2`; `known` is the answer when no topic is named.
    ClickException for what there is not."""
    from kraftlite.cli.kafka import list_topics

    metadata = list_topics(client).topics if topics else {}
    found: dict[Partition, None] = {}
    for item in topics:
        name, colon, numbers = item.partition(":")
        if not name or (colon and not all(number.isdecimal() for number in numbers.split(","))):
            raise click.UsageError(f"--topic {item}: allowed is a topic, or topic:0,1,…")
        existing = sorted(metadata[name].partitions) if name in metadata else []
        wanted = [int(number) for number in numbers.split(",")] if colon else existing
        if not existing or not set(wanted) <= set(existing):
            missing = name if not existing else f"partition {sorted(set(wanted) - set(existing))} of {name}"
            raise click.ClickException(f"{missing} does not exist")
        found.update(dict.fromkeys((name, index) for index in wanted))
    return sorted(found) if topics else sorted(known)
