"""Whom an administrator's request goes to when leaders and coordinators move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kraftlite.client.cluster import ClusterClient, Partition
from kraftlite.client.errors import ClientError
from kraftlite.client.settings import ClientSettings
from kraftlite.model.errors import ErrorCode

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
    """`answers`: of the coordinators one after the other, each at another address; None: the connection breaks."""

    def __init__(self, *answers: ErrorCode | None, time_ms: int = 10_000) -> None:
        quick = {"retry_timeout_ms": time_ms, "retry_backoff_ms": 0, "retry_backoff_max_ms": 1}
        super().__init__(ClientSettings(bootstrap=("one:9092",), **quick))  # type: ignore[arg-type]
        self.answers = [*answers]
        self.found = 0

    def _find_coordinator(self, group: str, budget: Any) -> tuple[str, int]:
        self.found += 1
        self._coordinators[group] = ("host", self.found)
        return self._coordinators[group]

    def _connect(self, address: tuple[str, int], deadline: float) -> Any:
        return self

    def ask(self, *_given: Any, version: int) -> ErrorCode:
        assert version == 7
        code = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if code is None:
            raise ConnectionResetError("gone")
        return code


def test_the_coordinator_is_found_again_when_it_has_moved() -> None:
    client = Coordinated(E.NOT_COORDINATOR, None, E.COORDINATOR_LOAD_IN_PROGRESS, E.NONE)
    assert client.call_coordinator("g", 47, 7, {}, lambda code: code) is E.NONE
    assert client.found == 4
    client = Coordinated(E.GROUP_ID_NOT_FOUND)
    assert client.call_coordinator("g", 47, 7, {}, lambda code: code) is E.GROUP_ID_NOT_FOUND
    assert client.found == 1
    client = Coordinated(E.NOT_COORDINATOR, time_ms=30)
    assert client.call_coordinator("g", 47, 7, {}, lambda code: code) is E.NOT_COORDINATOR
    with pytest.raises(ClientError, match="gone"):
        Coordinated(None, time_ms=30).call_coordinator("g", 47, 7, {}, lambda code: code)
