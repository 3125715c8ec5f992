"""kafka-transactions: what it says when it fails. Source: TA-04; Kafka's TransactionsCommand."""

from __future__ import annotations

from types import SimpleNamespace as Of
from typing import Any

import pytest

from kraftlite.cli.compat.transactions import carry_out, parser
from kraftlite.client.errors import ClientError
from kraftlite.model.errors import ErrorCode


class Cluster:
    """Topic t has partition 0 on brokers 1 and 2. `code`: what brokers say of its producers. `reached` False: none answers."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE, *, reached: bool = True) -> None:
        self.code = code
        self.reached = reached
        self.asked = 0

    def brokers(self) -> dict[int, None]:
        self.asked += 1
        if not self.reached:
            raise ClientError("no broker answered (b:1: Connection refused)")
        return {1: None, 2: None}

    def topics(self, _names: Any) -> dict[str, Any]:
        return {"t": Of(partitions=[Of(partition_index=0, replica_nodes=[1, 2])])}

    def leaders(self, _topics: Any) -> dict[tuple[str, int], int]:
        return {("t", 0): 1}

    def at_leaders(self, leaders: dict[Any, Any], ask: Any, _code: Any) -> Any:
        wanted = [partition for partition, leader in leaders.items() if leader is not None]
        return ask(1, wanted) if wanted else {}

    def at_brokers(self, *_asked: Any) -> Any:
        return iter([Of(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION, error_message=None)] * len(self.brokers()))

    def call(self, _key: int, _version: int, values: Any, **_more: Any) -> Any:
        part = {"error_code": self.code, "error_message": "t-0 has no replica here", "active_producers": []}
        topics = [
            Of(name=one["name"], partitions=[Of(partition_index=at, **part) for at in one["partition_indexes"]])
            for one in values["topics"]
        ]
        return Of(topics=topics)


def told(cluster: Cluster, command: str, capsys: pytest.CaptureFixture[str]) -> str:
    asked: Any = cluster
    assert carry_out(parser().read(command.split()), asked) == 1
    return capsys.readouterr().err.strip()


def test_a_listing_without_brokers_waits_for_them_once(capsys: pytest.CaptureFixture[str]) -> None:
    """It asked a second time for the brokers, of which none had answered, and so took the time limit twice."""
    cluster = Cluster(reached=False)
    assert told(cluster, "list", capsys) == (
        "Failed to list transactions: no broker answered (b:1: Connection refused). Enable debug logging for additional detail."
    )
    assert cluster.asked == 1


def test_a_listing_that_is_refused_names_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ListTransactions request sent to broker 1 failed" in told(Cluster(), "list --transactional-id-pattern [", capsys)


@pytest.mark.parametrize(
    ("command", "code", "why"),
    [
        (
            "find-hanging --topic t --broker-id 2",
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            "Failed to describe producers for 1 partitions on broker Optional[2]: "
            "Failed to describe active producers for partition t-0 on brokerId 2.",
        ),
        (
            "find-hanging --topic t --partition 9",
            ErrorCode.NONE,
            "Failed to describe producers for 1 partitions on broker Optional.empty: "
            "Failed to describe active producers for partition t-9: This server does not host this topic-partition.",
        ),
        (
            "describe-producers --topic t --partition 9",
            ErrorCode.NONE,
            "Failed to describe producers for partition t-9 on leader: "
            "Failed to describe active producers for partition t-9: This server does not host this topic-partition.",
        ),
        (
            "describe-producers --topic a/b --partition 0",
            ErrorCode.NONE,
            "Failed to describe producers for partition a/b-0 on leader: "
            "Failed to fetch metadata for partition a/b-0 due to invalid topic `a/b`.",
        ),
        (
            "abort --topic a/b --partition 0 --start-offset 0",
            ErrorCode.NONE,
            "Failed to validate producer state for partition a/b-0: "
            "Failed to fetch metadata for partition a/b-0 due to invalid topic `a/b`.",
        ),
        (
            "abort --topic t --partition 0 --start-offset 0",
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Failed to validate producer state for partition t-0: "
            "Failed to describe active producers for partition t-0 due to unexpected error.",
        ),
        (
            "find-hanging --topic a/b",
            ErrorCode.NONE,
            "Failed to describe 1 topics: The request attempted to perform an operation on an invalid topic..",
        ),
    ],
)
def test_a_failure_says_of_what_and_why(command: str, code: ErrorCode, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What was wrong with a partition that there is not was an unexpected error."""
    assert told(Cluster(code), command, capsys) == f"{why} Enable debug logging for additional detail."
