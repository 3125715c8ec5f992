"""What a field of a message between nodes may be: the table, and that it is applied where messages enter."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any
from uuid import UUID

import pytest

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.limits import MAX_INT32, MAX_OFFSET, RPC_MAX_REQUEST_ITEMS
from kraftlite.model.messages import controller as c
from kraftlite.model.messages import methods
from kraftlite.model.messages import raft as r
from kraftlite.model.messages.bounds import OutOfRange, checker, range_of, split_hint
from kraftlite.rpc import codec


def classes(cls: type[Any]) -> Iterator[type[Any]]:
    """A message class and all that it contains."""
    yield cls
    hints = typing.get_type_hints(cls)
    for field in fields(cls):
        inner, _, _ = split_hint(hints[field.name])
        if is_dataclass(inner):
            yield from classes(typing.cast("type[Any]", inner))


def integers() -> list[tuple[type[Any], str]]:
    found = {}
    for method in methods.ALL_METHODS:
        for cls in (*classes(method.request), *classes(method.response)):
            hints = typing.get_type_hints(cls)
            found.update({(cls, field.name): None for field in fields(cls) if split_hint(hints[field.name])[0] is int})
    return list(found)


def test_every_integer_of_every_message_has_a_range() -> None:
    assert len(integers()) > 100
    for cls, name in integers():
        low, high = range_of(cls, name)
        assert -(2**31) <= low <= 0 < high <= MAX_OFFSET, f"{cls.__name__}.{name}"


VOTE = r.VoteRequest(
    cluster_id="c",
    voter_id=NodeId(1),
    voter_directory_id=None,
    candidate_id=NodeId(2),
    candidate_directory_id=None,
    candidate_epoch=3,
    last_epoch=2,
    last_epoch_end_offset=9,
    pre_vote=False,
)
HEARTBEAT = c.BrokerHeartbeatRequest(
    broker_id=NodeId(1),
    broker_epoch=4,
    current_metadata_offset=-1,
    want_fence=False,
    want_shut_down=False,
    offline_log_dirs=(),
)


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        (VOTE, "candidate_epoch", 2**31 - 1),
        (VOTE, "candidate_epoch", -1),
        (VOTE, "last_epoch_end_offset", 2**63 - 1),
        (VOTE, "last_epoch_end_offset", -1),
        (VOTE, "candidate_id", -1),
        (VOTE, "cluster_id", "c" * 40_000),
        (HEARTBEAT, "broker_id", -1),
        (HEARTBEAT, "broker_epoch", -2),
        (HEARTBEAT, "current_metadata_offset", 2**63 - 1),
        (
            r.EndQuorumEpochRequest(cluster_id="c", leader_id=NodeId(1), leader_epoch=1, preferred_successors=()),
            "preferred_successors",
            (1, -1),
        ),
        (r.OffsetAndEpoch(1, 1), "offset", -1),
        (Endpoint("h", 1), "port", 65_536),
    ],
)
def test_a_value_outside_is_refused_by_name(message: Any, name: str, value: object) -> None:
    check = checker(type(message))
    assert check is not None
    check(message)
    with pytest.raises(OutOfRange, match=f"{type(message).__name__}.{name} "):
        check(dataclasses.replace(message, **{name: value}))


def test_what_is_nested_is_checked_too() -> None:
    found = codec.MessageCodec(methods.ALTER_PARTITION, c.AlterPartitionRequest)
    member = c.IsrMember(broker_id=NodeId(1), broker_epoch=2**63 - 1)
    item = c.AlterPartitionItem(
        topic_id=UUID(int=1), partition=0, leader_epoch=0, partition_epoch=0, new_isr=(member,), recovering=False
    )
    data = found.encode(c.AlterPartitionRequest(broker_id=NodeId(1), broker_epoch=1, partitions=(item,)))
    with pytest.raises(OutOfRange, match=r"IsrMember.broker_epoch is 9223372036854775807, allowed is -1 to \d+"):
        found.decode(data)


@pytest.mark.parametrize("depth", ["topics", "assignments", "broker_ids", "configs"])
def test_lists_are_bounded_at_every_depth_before_anything_is_made_of_them(depth: str) -> None:
    from kraftlite._pb import controller_pb2 as pb

    many = RPC_MAX_REQUEST_ITEMS + 1
    request = pb.CreateTopicsRequest()
    if depth == "topics":
        request.topics.extend([pb.CreatableTopic()] * many)
    else:
        topic = request.topics.add()
        if depth == "assignments":
            topic.assignments.extend([pb.ReplicaAssignment()] * many)
        elif depth == "configs":
            topic.configs.extend([pb.ConfigPair()] * many)
        else:
            topic.assignments.add().broker_ids.extend([1] * many)
    found = codec.MessageCodec(methods.CREATE_TOPICS, c.CreateTopicsRequest)
    with pytest.raises(OutOfRange, match="more than 100000 items"):
        found.decode(request.SerializeToString())


def test_a_list_that_may_be_absent_is_counted_where_it_is() -> None:
    found = codec.MessageCodec(methods.ELECT_LEADERS, c.ElectLeadersRequest)
    absent = c.ElectLeadersRequest(election_type=0, partitions=None, timeout_ms=1)
    assert found.decode(found.encode(absent)) == absent
    names = (c.PartitionName(topic="t", partition=MAX_INT32),) * (RPC_MAX_REQUEST_ITEMS + 1)
    with pytest.raises(OutOfRange):
        found.decode(found.encode(dataclasses.replace(absent, partitions=names)))
