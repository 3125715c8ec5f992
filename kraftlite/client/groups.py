"""Consumer groups as administrators see them: listed, described, deleted, and the offsets that they have committed.

Every function takes a `ClusterClient`. Requests go to the coordinators of the groups, one for all groups of a coordinator where
the protocol has that. In place of what is asked of a group stands a ClientError when there is none.

Source: Kafka's AdminClient (which errors are worth another attempt); KIP-518, KIP-699, KIP-709, KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kraftlite.client.cluster import BrokerNode, ClusterClient, Coordinator, Partition, check
from kraftlite.client.connection import code_of
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.coordinator.consumer_protocol import CONSUMER, parse_assignment
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
)

E = ErrorCode
DEAD: Final = "Dead"
"""The state of a group that does not exist."""
_UNKNOWN: Final = "Unknown"
_LOADING: Final = (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE)
_MOVING: Final = (E.NOT_COORDINATOR, *_LOADING, E.REBALANCE_IN_PROGRESS)
"""A commit that is refused with one of these may be taken later."""


class ListedGroup(NamedTuple):
    """`state` and `kind` as Kafka's tools call them, such as Stable and Classic; Unknown when the brokers are too old to tell."""

    group: str
    state: str
    kind: str


class Committed(NamedTuple):
    """`leader_epoch`: of the record before the offset; None when it was not committed."""

    offset: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class GroupMember:
    """`epoch` and `target`, the partitions that it will have when the rebalance is over: None in a group of the classic
    protocol."""

    member_id: str
    instance_id: str | None
    host: str
    client_id: str
    partitions: tuple[Partition, ...]
    epoch: int | None = None
    target: tuple[Partition, ...] | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator describes it, members by id. The epochs are None in a group of the classic protocol."""

    group: str
    state: str
    strategy: str
    coordinator: BrokerNode
    members: tuple[GroupMember, ...] = ()
    group_epoch: int | None = None
    target_epoch: int | None = None

    @property
    def exists(self) -> bool:
        return self.state != DEAD


def list_groups(cluster: ClusterClient) -> list[ListedGroup]:
    """The groups of consumers that every live broker has, by name. Raises ClientError when one cannot tell."""
    values: dict[str, Any] = {"states_filter": [], "types_filter": []}
    try:
        answers = cluster.at_brokers(LIST_GROUPS, 5, values, _LOADING)
    except ClientError as error:
        if error.code is not E.UNSUPPORTED_VERSION:
            raise
        answers = cluster.at_brokers(LIST_GROUPS, 4, values, _LOADING)  # before Kafka 3.8
    return sorted(
        ListedGroup(
            str(one.group_id), str(one.group_state) or _UNKNOWN, str(getattr(one, "group_type", "")).capitalize() or _UNKNOWN
        )
        for answer in answers
        for one in check(answer).groups
        if one.protocol_type in ("", CONSUMER)
    )


def describe_groups(cluster: ClusterClient, groups: Iterable[str]) -> dict[str, GroupDescription | ClientError]:
    """Groups of either protocol, in the order asked."""

    def ask(at: Coordinator, names: list[str]) -> dict[str, GroupDescription | ClientError]:
        found = _describe_new(at, names)
        others = [name for name in names if name not in found]
        return found | (_describe_classic(at, others) if others else {})

    return cluster.at_coordinators(groups, ask)


def _describe_new(at: Coordinator, names: list[str]) -> dict[str, GroupDescription | ClientError]:
    """Those of the new protocol; a coordinator that knows none of it may be too old for it, or have it switched off."""
    try:
        answer = at.call(CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": names, "include_authorized_operations": False})
    except ClientError as error:
        if error.code is not E.UNSUPPORTED_VERSION:
            raise
        return {}
    found: dict[str, GroupDescription | ClientError] = {}
    for one in answer.groups:
        code = code_of(one)
        if code in (E.GROUP_ID_NOT_FOUND, E.UNSUPPORTED_VERSION):
            continue
        name = str(one.group_id)
        if code is not E.NONE:
            found[name] = RequestRefused(code, one.error_message)
            continue
        members = [
            GroupMember(
                member_id=str(member.member_id),
                instance_id=member.instance_id or None,
                host=str(member.client_host),
                client_id=str(member.client_id),
                partitions=_assigned(member.assignment),
                epoch=int(member.member_epoch),
                target=_assigned(member.target_assignment),
            )
            for member in one.members
        ]
        found[name] = GroupDescription(
            group=name,
            state=str(one.group_state),
            strategy=str(one.assignor_name),
            coordinator=at.node,
            members=_by_id(members),
            group_epoch=int(one.group_epoch),
            target_epoch=int(one.assignment_epoch),
        )
    return found


def _describe_classic(at: Coordinator, names: list[str]) -> dict[str, GroupDescription | ClientError]:
    answer = at.call(DESCRIBE_GROUPS, 5, {"groups": names, "include_authorized_operations": False})
    found: dict[str, GroupDescription | ClientError] = {}
    for one in answer.groups:
        code, name = code_of(one), str(one.group_id)
        if code is not E.NONE:
            found[name] = RequestRefused(code)
            continue
        members = [
            GroupMember(
                member_id=str(member.member_id),
                instance_id=member.group_instance_id or None,
                host=str(member.client_host),
                client_id=str(member.client_id),
                partitions=_given(bytes(member.member_assignment)) if one.protocol_type == CONSUMER else (),
            )
            for member in one.members
        ]
        found[name] = GroupDescription(
            group=name,
            state=str(one.group_state) or _UNKNOWN,
            strategy=str(one.protocol_data),
            coordinator=at.node,
            members=_by_id(members),
        )
    return found


def _by_id(members: Iterable[GroupMember]) -> tuple[GroupMember, ...]:
    return tuple(sorted(members, key=lambda member: member.member_id))


def _assigned(assignment: Any) -> tuple[Partition, ...]:
    return tuple(sorted((str(one.topic_name), int(index)) for one in assignment.topic_partitions for index in one.partitions))


def _given(assignment: bytes) -> tuple[Partition, ...]:
    """The partitions that an assignor gave a member: none, when what it wrote is no assignment."""
    found = parse_assignment(assignment)
    return () if found is None else tuple(sorted((topic, index) for topic, indexes in found.topics for index in indexes))


def delete_groups(cluster: ClusterClient, groups: Iterable[str]) -> dict[str, ClientError | None]:
    """None: it is deleted. Only groups without members can be."""

    def ask(at: Coordinator, names: list[str]) -> dict[str, ClientError | None]:
        answer = at.call(DELETE_GROUPS, 2, {"groups_names": names})
        codes = {str(one.group_id): code_of(one) for one in answer.results}
        return {name: None if code is E.NONE else RequestRefused(code) for name, code in codes.items()}

    return cluster.at_coordinators(groups, ask)


# --- offsets


def committed_offsets(cluster: ClusterClient, groups: Iterable[str]) -> dict[str, dict[Partition, Committed] | ClientError]:
    """Offsets that each group has committed, by partition. Nothing, for a group that does not exist."""

    def ask(at: Coordinator, names: list[str]) -> dict[str, dict[Partition, Committed] | ClientError]:
        values = {"groups": [{"group_id": name, "topics": None} for name in names], "require_stable": False}
        answer = at.call(OFFSET_FETCH, 8, values)
        return {str(one.group_id): RequestRefused(code_of(one)) if code_of(one) else _committed(one) for one in answer.groups}

    return cluster.at_coordinators(groups, ask)


def _committed(group: Any) -> dict[Partition, Committed]:
    return {
        (str(topic.name), int(part.partition_index)): Committed(
            int(part.committed_offset), int(part.committed_leader_epoch) if part.committed_leader_epoch >= 0 else None
        )
        for topic in group.topics
        for part in topic.partitions
        if part.committed_offset >= 0 and code_of(part) is E.NONE
    }


def alter_offsets(cluster: ClusterClient, group: str, offsets: Mapping[Partition, int]) -> dict[Partition, ErrorCode]:
    """Commit these for a group without members. Raises ClientError when none of them could be."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        partition = {"partition_index": index, "committed_offset": offset}
        topics.setdefault(topic, []).append({**partition, "committed_leader_epoch": -1, "committed_metadata": ""})
    member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    values = {"group_id": group, **member, "topics": _named(topics)}

    def ask(at: Coordinator, _names: list[str]) -> dict[str, dict[Partition, ErrorCode] | ClientError]:
        codes = _codes(at.call(OFFSET_COMMIT, 8, values))
        moving = next((code for code in codes.values() if code in _MOVING), None)
        return {group: codes if moving is None else RequestRefused(moving)}

    return _of(cluster.at_coordinators([group], ask, again=_MOVING)[group])


def delete_offsets(cluster: ClusterClient, group: str, partitions: Sequence[Partition]) -> dict[Partition, ErrorCode]:
    """Forget where the group is in topics that it does not read. Raises ClientError when the request as a whole is refused."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append({"partition_index": index})
    values = {"group_id": group, "topics": _named(topics)}

    def ask(at: Coordinator, _names: list[str]) -> dict[str, dict[Partition, ErrorCode] | ClientError]:
        answer = at.call(OFFSET_DELETE, 0, values)
        code = code_of(answer)
        return {group: _codes(answer) if code is E.NONE else RequestRefused(code)}

    return _of(cluster.at_coordinators([group], ask)[group])


def _named(topics: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def _codes(answer: Any) -> dict[Partition, ErrorCode]:
    return {(str(topic.name), int(one.partition_index)): code_of(one) for topic in answer.topics for one in topic.partitions}


def _of(found: dict[Partition, ErrorCode] | ClientError) -> dict[Partition, ErrorCode]:
    if isinstance(found, ClientError):
        raise found
    return found
