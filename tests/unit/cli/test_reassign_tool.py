"""kafka-reassign-partitions: moves that are cancelled, and what may not change. Source: Kafka's ReassignPartitionsCommand;
KIP-113, KIP-860."""

from __future__ import annotations

from types import SimpleNamespace as Of
from typing import Any

import pytest
from click.testing import CliRunner

from kraftlite.cli.compat.log_dir_moves import under_way, verify
from kraftlite.cli.compat.reassign_partitions import brokers_of, moves_of, take_back
from kraftlite.cli.compat.tool import ToolError
from kraftlite.cli.main import cli
from kraftlite.client.admin import alter_reassignments
from kraftlite.model.errors import ErrorCode

REPLICA = ("t", 0), 1


class Cluster:
    """Broker 1, with t-0 in /a and perhaps a copy of it in /b. `asked`: the changes."""

    settings = Of(retry_timeout_ms=1_000)

    def __init__(self, *, copy: bool) -> None:
        self.copy = copy
        self.asked: list[tuple[int, int, Any]] = []

    def brokers(self) -> dict[int, None]:
        return {1: None}

    def call(self, key: int, version: int, values: dict[str, Any], **_more: Any) -> Any:
        if key == 35:
            return Of(error_code=ErrorCode.NONE, results=[_holds("/a", False), *([_holds("/b", True)] if self.copy else [])])
        self.asked.append((key, version, values))
        one = Of(partition_index=0, error_code=ErrorCode.NONE, error_message=None)
        topic = Of(name="t", topic_name="t", partitions=[one])
        return Of(error_code=ErrorCode.NONE, error_message=None, responses=[topic], results=[topic])


def _holds(path: str, future: bool) -> Any:
    part = Of(partition_index=0, partition_size=1, offset_lag=0, is_future_key=future)
    room = {"total_bytes": 9, "usable_bytes": 9, "is_cordoned": False}
    return Of(log_dir=path, error_code=ErrorCode.NONE, topics=[Of(name="t", partitions=[part])], **room)


def test_a_move_between_directories_is_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    cluster: Any = Cluster(copy=True)
    assert under_way(cluster, [REPLICA, (("t", 0), 9)]) == {REPLICA: "/a"}
    take_back(cluster, [REPLICA], None)
    ((key, _version, values),) = cluster.asked
    assert (key, values["dirs"][0]["path"]) == (34, "/a")
    assert capsys.readouterr().out == "Successfully started moving log directory to /a for replica t-0 with broker 1 \n"


def test_what_does_not_move_stays(capsys: pytest.CaptureFixture[str]) -> None:
    cluster: Any = Cluster(copy=False)
    take_back(cluster, [REPLICA], None)
    assert cluster.asked == []
    assert capsys.readouterr().out == "None of the specified partition moves are active."


@pytest.mark.parametrize("any_factor", [True, False])
def test_the_number_of_replicas_may_be_kept(any_factor: bool) -> None:
    cluster: Any = Cluster(copy=False)
    answer = alter_reassignments(cluster, {("t", 0): [1]}, any_factor=any_factor)
    assert answer == {("t", 0): (ErrorCode.NONE, None)}
    ((key, version, values),) = cluster.asked
    assert (key, version, values.get("allow_replication_factor_change", True)) == (45, 0 if any_factor else 1, any_factor)


def test_a_move_to_elsewhere_is_under_way_even_where_the_replica_is_where_it_should_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster: Any = Cluster(copy=True)
    assert not verify(cluster, {REPLICA: "/a"})
    assert capsys.readouterr().out == "Partition t-0 on broker 1 is being moved to log dir /b instead of /a.\n"


def test_a_throttle_of_a_moving_partition_holds_for_the_replicas_that_are_being_added() -> None:
    """With --additional the throttle is set again: the replicas of the partition are then those of before and after."""
    moving = {("t", 0): Of(replicas=[3, 1, 2], adding_replicas=[3], removing_replicas=[2])}
    assert moves_of(moving, {("t", 0): [3, 1]}, {("t", 0): [3, 1, 2]}) == {("t", 0): ({1, 2}, {3})}


def test_a_throttle_goes_on_for_the_partitions_that_are_moving_already() -> None:
    """The throttled replicas of a topic are one list, which each call writes anew."""
    moving = {("t", 1): Of(replicas=[3, 1], adding_replicas=[3], removing_replicas=[1])}
    moves = moves_of(moving, {("t", 0): [2]}, {("t", 0): [1]})
    assert moves == {("t", 0): ({1}, {2}), ("t", 1): ({1}, {3})}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--list --verify", "exactly one action: --generate, --execute, --verify, --cancel, --list"),
        ("--list --throttle 5", 'Option "[throttle]" can\'t be used with action "[list]"'),
        ("--list --reassignment-json-file f", 'Option "[reassignment-json-file]" can\'t be used with action "[list]"'),
        ("--verify --reassignment-json-file f --additional", 'Option "[additional]" can\'t be used with action "[verify]"'),
        ("--execute --reassignment-json-file f --preserve-throttles", "can't be used with action"),
        ("--generate --topics-to-move-json-file f", 'Missing required argument "[broker-list]"'),
        ("--bootstrap-controller x:1 --verify --reassignment-json-file f", 'Option "[bootstrap-controller]" can\'t be used'),
        ("--bootstrap-controller x:1 --bootstrap-server y:1 --list", "Please don't specify both"),
    ],
)
def test_options_that_do_not_fit_the_action_are_refused(arguments: str, said: str) -> None:
    result = CliRunner().invoke(cli, ["compat", "kafka-reassign-partitions", *arguments.split()])
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr


@pytest.mark.parametrize(("text", "brokers"), [("1,2", [1, 2]), ("1,2,", [1, 2]), ("+3", [3])])
def test_brokers_are_numbers_between_commas(text: str, brokers: list[int]) -> None:
    assert brokers_of(text) == brokers


@pytest.mark.parametrize("text", ["", "1, 2", "1_0", "x", ",1", "99999999999"])
def test_what_is_no_broker_is_refused(text: str) -> None:
    """`1_0` was broker 10."""
    with pytest.raises(ToolError, match=f"--broker-list {text}: allowed is 1,2,3"):
        brokers_of(text)
