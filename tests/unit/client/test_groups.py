"""What administrators are told of groups by coordinators of all ages.

Source: Kafka's AdminClient; KIP-518 (states), KIP-848 (types and the new protocol), KIP-709 (offsets of several groups).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.client import groups
from kraftlite.client.cluster import BrokerNode, ClusterClient
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.client.settings import ClientSettings
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol import api_keys as k
from kraftlite.protocol.kio_codec import decode_response, encode_response

E = ErrorCode
NODE = BrokerNode(1, "host", 9092, None)
Answer = Mapping[str, Any] | ErrorCode | Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Brokers(ClusterClient):
    """One broker, which coordinates all groups. `answers`: by API and version, as plain values, one after the other, the last one
    again and again; a version that is not there is not offered."""

    def __init__(self, answers: Mapping[tuple[int, int], list[Answer]], *, retry_timeout_ms: int = 10_000) -> None:
        quick: Any = {"retry_timeout_ms": retry_timeout_ms, "retry_backoff_ms": 0, "retry_backoff_max_ms": 1}
        super().__init__(ClientSettings(bootstrap=("host:9092",), **quick))
        self.answers = answers
        self.asked: list[tuple[int, int]] = []

    def brokers(self) -> dict[int, BrokerNode]:
        return {1: NODE}

    def call(self, api_key: int, version: int, values: Mapping[str, Any], **_more: Any) -> Any:
        return self.ask(api_key, values, version=version)

    def _ask_anyone(self, api_key: int, values: Mapping[str, Any], *_given: Any, **_more: Any) -> Any:
        assert api_key == k.FIND_COORDINATOR
        found = {"error_code": E.NONE, "node_id": 1, "host": "host", "port": 9092}
        return SimpleNamespace(coordinators=[SimpleNamespace(key=key, **found) for key in values["coordinator_keys"]])

    def _connect(self, address: tuple[str, int], deadline: float) -> Any:
        return self

    def ask(self, api_key: int, values: Mapping[str, Any], deadline: float = 0.0, *, version: int) -> Any:
        self.asked.append((api_key, version))
        answers = self.answers.get((api_key, version))
        if answers is None:
            raise ClientError("the broker does not offer it", E.UNSUPPORTED_VERSION)
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        plain = answer(values) if callable(answer) else answer
        assert not isinstance(plain, ErrorCode)
        body = encode_response(api_key, version, {"throttle_time": 0, **plain})
        flexible = api_key != k.OFFSET_DELETE
        return decode_response(api_key, version, memoryview(bytes(4) + b"\0" * flexible + body))


def listed(group: str, protocol: str = "consumer", **more: str) -> dict[str, str]:
    return {"group_id": group, "protocol_type": protocol, "group_state": "Stable", **more}


def test_groups_of_consumers_are_listed_and_others_are_not() -> None:
    found = [
        listed("b", group_type="classic"),
        listed("a", "", group_type="consumer"),
        listed("c", "connect", group_type="classic"),
    ]
    loading = {"error_code": E.COORDINATOR_LOAD_IN_PROGRESS, "groups": []}
    cluster = Brokers({(k.LIST_GROUPS, 5): [loading, {"error_code": E.NONE, "groups": found}]})
    assert groups.list_groups(cluster) == [("a", "Stable", "Consumer"), ("b", "Stable", "Classic")]
    assert cluster.asked == [(k.LIST_GROUPS, 5)] * 2, "a broker that loads its groups is asked again"


def test_a_broker_that_knows_no_types_is_asked_without_them() -> None:
    cluster = Brokers({(k.LIST_GROUPS, 4): [{"error_code": E.NONE, "groups": [listed("a")]}]})
    assert groups.list_groups(cluster) == [("a", "Stable", "Unknown")]


def test_a_broker_that_may_not_tell_its_groups_is_an_error() -> None:
    cluster = Brokers({(k.LIST_GROUPS, 5): [{"error_code": E.CLUSTER_AUTHORIZATION_FAILED, "groups": []}]})
    with pytest.raises(RequestRefused, match="CLUSTER_AUTHORIZATION_FAILED"):
        groups.list_groups(cluster)


def classic(group: str, *assignments: bytes, protocol: str = "consumer", error: ErrorCode = E.NONE) -> dict[str, Any]:
    members = [
        {
            "member_id": f"m{number}",
            "group_instance_id": None,
            "client_id": "me",
            "client_host": "/127.0.0.1",
            "member_metadata": b"",
            "member_assignment": assignment,
        }
        for number, assignment in enumerate(assignments)
    ]
    told = {"group_state": "Stable", "protocol_type": protocol, "protocol_data": "range", "members": members[::-1]}
    return {"group_id": group, "error_code": error, **told}


ASSIGNMENT = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\0"


@pytest.mark.parametrize("code", [E.GROUP_ID_NOT_FOUND, E.UNSUPPORTED_VERSION, None])
def test_a_group_that_is_not_of_the_new_protocol_is_asked_for_in_the_old_way(code: ErrorCode | None) -> None:
    """So is every group, when the broker is too old for the new one (None) or has it switched off."""
    answers: dict[tuple[int, int], list[Answer]] = {(k.DESCRIBE_GROUPS, 5): [{"groups": [classic("g", ASSIGNMENT, b"")]}]}
    if code is not None:
        empty = {"group_state": "", "group_epoch": 0, "assignment_epoch": 0, "assignor_name": "", "members": []}
        answers[k.CONSUMER_GROUP_DESCRIBE, 1] = [{"groups": [{"group_id": "g", "error_code": code, **empty}]}]
    found = groups.describe_groups(Brokers(answers), ["g"])["g"]
    assert isinstance(found, groups.GroupDescription) and found.exists
    assert (found.state, found.strategy, found.coordinator, found.group_epoch) == ("Stable", "range", NODE, None)
    assert [(it.member_id, it.partitions, it.target) for it in found.members] == [
        ("m0", (("t", 0), ("t", 2)), None),
        ("m1", (), None),
    ]


@pytest.mark.parametrize("wrong", [b"\0", b"\0\1\x7f\xff\xff\xff", ASSIGNMENT[:-9], b"\xff" * 40])
def test_an_assignment_that_nobody_can_read_is_none(wrong: bytes) -> None:
    cluster = Brokers({(k.DESCRIBE_GROUPS, 5): [{"groups": [classic("g", wrong)]}]})
    found = groups.describe_groups(cluster, ["g"])["g"]
    assert isinstance(found, groups.GroupDescription) and found.members[0].partitions == ()


def test_what_other_protocols_than_consumers_assign_is_not_read() -> None:
    cluster = Brokers({(k.DESCRIBE_GROUPS, 5): [{"groups": [classic("g", ASSIGNMENT, protocol="connect")]}]})
    found = groups.describe_groups(cluster, ["g"])["g"]
    assert isinstance(found, groups.GroupDescription) and found.members[0].partitions == ()


def test_a_group_that_is_refused_does_not_hide_the_others() -> None:
    refused = classic("b", error=E.GROUP_AUTHORIZATION_FAILED)
    cluster = Brokers({(k.DESCRIBE_GROUPS, 5): [{"groups": [classic("a"), refused]}]}, retry_timeout_ms=200)
    found = groups.describe_groups(cluster, ["b", "a", "c"])
    assert list(found) == ["b", "a", "c"]
    assert isinstance(found["a"], groups.GroupDescription)
    assert isinstance(found["b"], RequestRefused) and found["b"].code is E.GROUP_AUTHORIZATION_FAILED
    assert isinstance(found["c"], ClientError), "the coordinator said nothing of it"


def offsets_of(group: str, *partitions: tuple[int, int, int, ErrorCode], error: ErrorCode = E.NONE) -> dict[str, Any]:
    parts = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": epoch,
            "metadata": "",
            "error_code": code,
        }
        for index, offset, epoch, code in partitions
    ]
    return {"group_id": group, "topics": [{"name": "t", "partitions": parts}], "error_code": error}


def test_only_what_is_committed_counts() -> None:
    rows = [(0, 5, 2, E.NONE), (1, 6, -1, E.NONE), (2, -1, -1, E.NONE), (3, 7, 1, E.UNSTABLE_OFFSET_COMMIT)]
    answer = {"groups": [offsets_of("a", *rows), offsets_of("b", error=E.GROUP_AUTHORIZATION_FAILED)]}
    found = groups.committed_offsets(Brokers({(k.OFFSET_FETCH, 8): [answer]}), ["a", "b"])
    assert found["a"] == {("t", 0): (5, 2), ("t", 1): (6, None)}
    assert isinstance(found["b"], RequestRefused)


def partitions(codes: Iterable[ErrorCode]) -> list[dict[str, Any]]:
    return [{"name": "t", "partitions": [{"partition_index": at, "error_code": code} for at, code in enumerate(codes)]}]


@pytest.mark.parametrize("moving", [E.REBALANCE_IN_PROGRESS, E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_commit_that_is_refused_for_the_time_being_is_sent_again(moving: ErrorCode) -> None:
    answers: list[Answer] = [
        {"topics": partitions([E.NONE, moving])},
        {"topics": partitions([E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION])},
    ]
    cluster = Brokers({(k.OFFSET_COMMIT, 8): answers})
    codes = groups.alter_offsets(cluster, "g", {("t", 0): 1, ("t", 1): 2})
    assert codes == {("t", 0): E.NONE, ("t", 1): E.UNKNOWN_TOPIC_OR_PARTITION}
    assert cluster.asked == [(k.OFFSET_COMMIT, 8)] * 2


def test_offsets_are_deleted_by_partition_or_refused_as_a_whole() -> None:
    subscribed = {"error_code": E.NONE, "topics": partitions([E.NONE, E.GROUP_SUBSCRIBED_TO_TOPIC])}
    wanted = [("t", 0), ("t", 1)]
    found = groups.delete_offsets(Brokers({(k.OFFSET_DELETE, 0): [subscribed]}), "g", wanted)
    assert found == {("t", 0): E.NONE, ("t", 1): E.GROUP_SUBSCRIBED_TO_TOPIC}
    with pytest.raises(RequestRefused, match="GROUP_ID_NOT_FOUND"):
        groups.delete_offsets(Brokers({(k.OFFSET_DELETE, 0): [{"error_code": E.GROUP_ID_NOT_FOUND, "topics": []}]}), "g", wanted)


def test_each_group_is_deleted_or_its_reason_told() -> None:
    def answer(values: Mapping[str, Any]) -> Mapping[str, Any]:
        codes = {"a": E.NONE, "b": E.NON_EMPTY_GROUP}
        return {"results": [{"group_id": name, "error_code": codes[name]} for name in values["groups_names"]]}

    found = groups.delete_groups(Brokers({(k.DELETE_GROUPS, 2): [answer]}), ["b", "a"])
    assert list(found) == ["b", "a"] and found["a"] is None
    assert isinstance(found["b"], RequestRefused) and found["b"].code is E.NON_EMPTY_GROUP
