"""Whom an administrator's request goes to when leaders and coordinators move."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.client.cluster import ClusterClient, Coordinator, Partition
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.client.settings import ClientSettings
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import FIND_COORDINATOR

E = ErrorCode
T0, T1 = ("t", 0), ("t", 1)


class Cluster(ClusterClient):
    """`moves`: the leaders that a client is told of, one time after the other; the last ones stay."""

    def __init__(self, *moves: Mapping[Partition, int | None], time_ms: int = 10_000) -> None:
        quick = {"retry_timeout_ms": time_ms, "retry_backoff_ms": 0, "retry_backoff_max_ms": 1}
        super().__init__(ClientSettings(bootstrap=("one:9092",), **quick))  # type: ignore[arg-type]
        self.moves = [*moves]
        self.asked: list[tuple[int, list[Partition]]] = []

    def leaders(self, names: list[str] | None = None) -> dict[Partition, int | None]:
        return dict(self.moves.pop(0) if len(self.moves) > 1 else self.moves[0])

    def found(self, answers: Mapping[int, ErrorCode | None]) -> dict[Partition, ErrorCode]:
        """`answers`: what each broker answers about all partitions; None: it is gone."""

        def ask(leader: int, partitions: list[Partition]) -> dict[Partition, ErrorCode]:
            self.asked.append((leader, partitions))
            code = answers[leader]
            if code is None:
                raise ClientError(f"no broker answered (broker {leader})")
            return dict.fromkeys(partitions, code)

        return self.at_leaders(self.leaders(), ask, lambda code: code)


def test_each_leader_is_asked_once_about_its_own() -> None:
    cluster = Cluster({T0: 1, T1: 2, ("u", 0): None, ("v", 0): 1})
    assert cluster.found({1: E.NONE, 2: E.UNKNOWN_TOPIC_OR_PARTITION}) == {
        T0: E.NONE,
        ("v", 0): E.NONE,
        T1: E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert cluster.asked == [(1, [T0, ("v", 0)]), (2, [T1])]


@pytest.mark.parametrize("gone", [E.NOT_LEADER_OR_FOLLOWER, E.FENCED_LEADER_EPOCH, None])
def test_the_next_leader_is_asked_when_one_is_gone(gone: ErrorCode | None) -> None:
    cluster = Cluster({T0: 1, T1: 2}, {T0: 1, T1: None}, {T0: 1, T1: None}, {T0: 1, T1: 3})
    assert cluster.found({1: E.NONE, 2: gone, 3: E.NONE}) == {T0: E.NONE, T1: E.NONE}
    assert cluster.asked == [(1, [T0]), (2, [T1]), (3, [T1])]


def test_when_time_is_over_the_last_answer_counts() -> None:
    cluster = Cluster({T0: 1}, time_ms=30)
    assert cluster.found({1: E.NOT_LEADER_OR_FOLLOWER}) == {T0: E.NOT_LEADER_OR_FOLLOWER}
    assert len(cluster.asked) > 1
    with pytest.raises(ClientError, match=r"no broker answered \(broker 1\)"):
        Cluster({T0: 1}, time_ms=30).found({1: None})


class Coordinated(ClusterClient):
    """`homes`: the brokers that coordinate each group, one time after the other; an error instead: why there is none. The last
    ones stay. `answers`: of the broker on each port, one after the other; None: the connection breaks."""

    def __init__(
        self,
        homes: Mapping[str, list[int | ErrorCode]],
        answers: Mapping[int, list[ErrorCode | None]],
        time_ms: int = 10_000,
    ) -> None:
        quick = {"retry_timeout_ms": time_ms, "retry_backoff_ms": 0, "retry_backoff_max_ms": 1}
        super().__init__(ClientSettings(bootstrap=("one:9092",), **quick))  # type: ignore[arg-type]
        self.homes, self.answers = homes, answers
        self.found: list[list[str]] = []
        self.asked: list[tuple[int, list[str]]] = []

    def _ask_anyone(self, api_key: int, values: Mapping[str, Any], *_given: Any, version: int | None = None, **_more: Any) -> Any:
        assert (api_key, version) == (FIND_COORDINATOR, 4)
        self.found.append(list(values["coordinator_keys"]))
        return Named(coordinators=[self._named(key) for key in values["coordinator_keys"] if key in self.homes])

    def _named(self, key: str) -> Named:
        home = self.homes[key].pop(0) if len(self.homes[key]) > 1 else self.homes[key][0]
        if isinstance(home, ErrorCode):
            return Named(key=key, error_code=home, error_message=None)
        return Named(key=key, error_code=0, node_id=home, host="host", port=home)

    def _connect(self, address: tuple[str, int], deadline: float) -> Any:
        return At(self, address[1])

    def collect(self, *groups: str, again: Collection[ErrorCode] = ()) -> dict[str, Any]:
        def ask(at: Coordinator, names: list[str]) -> dict[str, str | ClientError]:
            self.asked.append((at.node.id, names))
            code = at.call(47, 7, {})
            return dict.fromkeys(names, f"of {at.node.id}" if code is E.NONE else RequestRefused(code))

        return self.at_coordinators(groups, ask, again)


class Named(SimpleNamespace):
    """A part of an answer."""


class At:
    """The connection to one broker."""

    def __init__(self, cluster: Coordinated, port: int) -> None:
        self._answers = cluster.answers[port]

    def ask(self, *_given: Any, version: int) -> ErrorCode:
        assert version == 7
        code = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if code is None:
            raise ConnectionResetError("gone")
        return code


def test_all_groups_of_a_coordinator_are_in_one_request() -> None:
    client = Coordinated({"a": [1], "b": [2], "c": [1]}, {1: [E.NONE], 2: [E.NONE]})
    assert list(client.collect("c", "b", "a", "c").items()) == [("c", "of 1"), ("b", "of 2"), ("a", "of 1")]
    assert (client.found, client.asked) == ([["c", "b", "a"]], [(1, ["c", "a"]), (2, ["b"])])
    client.collect("a", "b")
    assert len(client.found) == 1, "who coordinates them is known"
    assert client.collect() == {}


@pytest.mark.parametrize("gone", [E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, None])
def test_the_coordinator_is_found_again_when_it_has_moved(gone: ErrorCode | None) -> None:
    client = Coordinated({"a": [1, E.COORDINATOR_NOT_AVAILABLE, 3], "b": [2]}, {1: [gone], 2: [E.NONE], 3: [E.NONE]})
    assert client.collect("a", "b") == {"a": "of 3", "b": "of 2"}
    assert client.found == [["a", "b"], ["a"], ["a"]]
    assert client.asked == [(1, ["a"]), (2, ["b"]), (3, ["a"])], "who has answered is not asked again"


def test_a_refusal_counts_at_once_unless_it_is_one_for_the_time_being() -> None:
    client = Coordinated({"a": [1], "b": [E.GROUP_AUTHORIZATION_FAILED]}, {1: [E.REBALANCE_IN_PROGRESS, E.NONE]})
    refused = client.collect("a", "b")
    assert [refused[name].code for name in "ab"] == [E.REBALANCE_IN_PROGRESS, E.GROUP_AUTHORIZATION_FAILED]
    assert client.asked == [(1, ["a"])]
    client = Coordinated({"a": [1]}, {1: [E.REBALANCE_IN_PROGRESS, E.NONE]})
    assert client.collect("a", again=(E.REBALANCE_IN_PROGRESS,)) == {"a": "of 1"}


def test_when_time_is_over_the_last_finding_of_each_group_counts() -> None:
    homes: dict[str, list[int | ErrorCode]] = {"a": [1], "b": [2], "c": [3], "d": [E.COORDINATOR_NOT_AVAILABLE]}
    client = Coordinated(homes, {1: [E.NOT_COORDINATOR], 2: [None], 3: [E.NONE]}, time_ms=30)
    found = client.collect("a", "b", "c", "d", "unnamed")
    assert found["a"].code is E.NOT_COORDINATOR and found["d"].code is E.COORDINATOR_NOT_AVAILABLE
    assert str(found["b"]) == "no broker answered (host:2: gone)" and found["b"].code is None
    assert found["c"] == "of 3"
    assert str(found["unnamed"]) == "no broker named its coordinator"
    assert len(client.found) > 1 and client.asked.count((3, ["c"])) == 1
