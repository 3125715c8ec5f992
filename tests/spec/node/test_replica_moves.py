"""Replicas that move between the directories of a broker: ended in the middle by whatever may happen (JB-09 to JB-12)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kraftlite.broker.handlers.admin import alter_configs
from kraftlite.broker.handlers.log_dirs import describe_log_dirs
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.controller import (
    AlterConfigOp,
    ConfigChange,
    ConfigResourceChange,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.throttle import MOVES_RATE
from kraftlite.runtime.turns import Turns
from tests.harness.node_cluster import MemCluster, MemNode
from tests.spec.node.test_directories import A0, broker_of, cluster_of, is_told, logs_of, other_directory, settled

COUNT = 12


async def with_a_replica(tmp_path: Path, brokers: int = 2) -> tuple[MemCluster, MemNode, str, str]:
    """A cluster with topic a and its leader, and the leader's directory and the other one."""
    cluster = await cluster_of(tmp_path, brokers)
    await cluster.create_topic("a", replicas=brokers)
    await settled(cluster, "a", tuple(range(2, 2 + brokers)))
    for count in range(COUNT):
        assert await cluster.produce("a", f"record {count}") is ErrorCode.NONE
    node = cluster.leader("a")
    assert node is not None
    home = logs_of(node).directory_of(A0)
    assert home is not None
    return cluster, node, home, other_directory(node)


def hold(node: MemNode) -> None:
    """The controller hears nothing of directories any more: a move that is complete waits."""
    broker_of(node).assignments.close()


async def whole(cluster: MemCluster, node: MemNode, home: str) -> None:
    """The replica is in `home` and nowhere else, metadata says so, and every record is there."""
    await cluster.until(lambda: node.up and logs_of(node).directory_of(A0) == home, f"a-0 in {home}")
    await cluster.until(lambda: is_told(cluster, node), "its directory to be known")
    await cluster.until(lambda: cluster.leader("a") is not None, "a leader")
    await cluster.until(lambda: node.node_id in cluster.isr("a"), "the replica in the ISR")
    await cluster.until(lambda: cluster.readable("a") >= COUNT, "all records")
    log = logs_of(node).get(A0)
    assert log is not None and log.leo >= COUNT
    await cluster.clock.run_for(70_000)
    found = {path: [it for it in node.disk.listdir(path) if it.startswith("a-0")] for path in ("/d1", "/d2")}
    assert found.pop(home) == ["a-0"] and list(found.values()) == [[]], found


def copies(node: MemNode) -> list[str]:
    return [path for path, _, _ in logs_of(node).moves.copies()]


async def test_jb_11_a_power_cut_amid_a_move_and_it_goes_on(tmp_path: Path) -> None:
    cluster, node, _, target = await with_a_replica(tmp_path)
    hold(node)
    logs_of(node).moves.alter(A0, target)
    await cluster.until(lambda: all(lag == 0 for _, _, lag in logs_of(node).moves.copies()), "a complete copy")
    assert copies(node) == [target]
    await node.crash()
    node.boot()
    await whole(cluster, node, target)


async def test_jb_11_a_crash_between_the_assignment_and_the_renaming(tmp_path: Path) -> None:
    """Metadata names the target, the replica is still in the other directory, and the copy beside it (KAFKA-16082)."""
    cluster, node, _, target = await with_a_replica(tmp_path)
    logs = logs_of(node)
    logs.log_moves.promote = lambda move, home: None  # type: ignore[method-assign]
    logs.moves.alter(A0, target)
    await cluster.until(
        lambda: broker_of(node).cache.partition("a", 0).directory_of(node.node_id) in logs.online_ids(), "metadata"
    )
    await cluster.until(lambda: (move := logs.log_moves.get(A0)) is not None and move.said, "the assignment")
    await cluster.clock.run_for(3_000)
    await node.crash()
    node.boot()
    await whole(cluster, node, target)


async def test_jb_11_a_crash_between_the_two_renamings_leaves_the_one_that_metadata_names(tmp_path: Path) -> None:
    cluster, node, home, target = await with_a_replica(tmp_path)
    logs = logs_of(node)
    logs.log_moves.promote = lambda move, home: None  # type: ignore[method-assign]
    logs.moves.alter(A0, target)
    await cluster.until(lambda: (move := logs.log_moves.get(A0)) is not None and move.said, "the assignment")
    await cluster.clock.run_for(3_000)
    await node.crash()
    (copy,) = [name for name in node.disk.listdir(target) if name.endswith("-future")]
    node.disk.rename(f"{target}/{copy}", f"{target}/a-0")
    node.disk.sync_dir(target)
    assert "a-0" in node.disk.listdir(home)
    node.boot()
    await whole(cluster, node, target)


async def test_jb_11_a_copy_is_the_replica_where_metadata_says_so_and_no_other_is_left(tmp_path: Path) -> None:
    cluster, node, home, target = await with_a_replica(tmp_path)
    logs = logs_of(node)
    logs.log_moves.promote = lambda move, home: None  # type: ignore[method-assign]
    logs.moves.alter(A0, target)
    await cluster.until(lambda: (move := logs.log_moves.get(A0)) is not None and move.said, "the assignment")
    await cluster.clock.run_for(3_000)
    await node.crash()
    node.disk.rmtree(f"{home}/a-0")
    node.boot()
    await whole(cluster, node, target)


async def test_jb_10_the_present_directory_cancels_a_move(tmp_path: Path) -> None:
    """Also after the controller was told: it is told again (KAFKA-16297)."""
    cluster, node, home, target = await with_a_replica(tmp_path)
    logs = logs_of(node)
    promote = logs.log_moves.promote
    logs.log_moves.promote = lambda move, home: None  # type: ignore[method-assign]
    logs.moves.alter(A0, target)
    await cluster.until(lambda: (move := logs.log_moves.get(A0)) is not None and move.said, "the assignment")
    await cluster.clock.run_for(1_000)
    logs.moves.alter(A0, home)
    logs.log_moves.promote = promote  # type: ignore[method-assign]
    assert copies(node) == []
    await whole(cluster, node, home)


@pytest.mark.parametrize("said", [False, True], ids=["before the assignment", "after the assignment"])
async def test_jb_10_a_target_that_fails_costs_the_copy_only(tmp_path: Path, said: bool) -> None:
    cluster, node, home, target = await with_a_replica(tmp_path)
    logs = logs_of(node)
    if said:
        logs.log_moves.promote = lambda move, home: None  # type: ignore[method-assign]
    if not said:
        node.disk.inject("pwritev", path=target, times=None)
        with pytest.raises(ApiError, match="a copy of a-0 cannot be made"):
            logs.moves.alter(A0, target)
    else:
        logs.moves.alter(A0, target)
        await cluster.until(lambda: (move := logs.log_moves.get(A0)) is not None and move.said, "the assignment")
        await cluster.clock.run_for(1_000)
        state = next(state for state in logs._dirs if state.path == target)
        logs._fail(state, OSError(5, "gone"))
    await cluster.until(lambda: logs.offline_directories() == (target,), "the failure")
    assert copies(node) == [] and logs.directory_of(A0) == home
    await cluster.until(lambda: cluster.leader("a") is not None and cluster.isr("a") == (2, 3), "a full ISR")
    await cluster.until(lambda: is_told(cluster, node), "the directory to be known")
    assert await cluster.produce("a", "after") is ErrorCode.NONE


async def test_jb_10_a_source_that_fails_ends_the_move_and_the_leadership(tmp_path: Path) -> None:
    cluster, node, home, target = await with_a_replica(tmp_path)
    hold(node)
    logs_of(node).moves.alter(A0, target)
    await cluster.until(lambda: all(lag == 0 for _, _, lag in logs_of(node).moves.copies()), "a complete copy")
    node.disk.inject("pwritev", path=f"{home}/a-0", times=None)
    assert await cluster.produce("a", "lost") is ErrorCode.KAFKA_STORAGE_ERROR
    broker_of(node).assignments.start()
    await cluster.until(lambda: cluster.leader("a") not in (None, node), "another leader")
    assert copies(node) == [] and logs_of(node).get(A0) is None
    assert cluster.readable("a") >= COUNT
    assert any(name.endswith("-future") for name in node.disk.listdir(target)), "it may be all that is left"


async def test_jb_10_deleting_the_topic_deletes_both(tmp_path: Path) -> None:
    cluster, node, _, target = await with_a_replica(tmp_path)
    hold(node)
    logs_of(node).moves.alter(A0, target)
    await cluster.until(lambda: all(lag == 0 for _, _, lag in logs_of(node).moves.copies()), "a complete copy")
    await cluster.delete_topic("a")
    await cluster.until(lambda: copies(node) == [] and logs_of(node).get(A0) is None, "both to be gone")
    await cluster.clock.run_for(70_000)
    assert not [name for path in ("/d1", "/d2") for name in node.disk.listdir(path) if name.startswith("a-0")]


async def test_jb_12_a_copy_is_described_with_its_lag(tmp_path: Path) -> None:
    cluster, node, home, target = await with_a_replica(tmp_path)
    hold(node)
    logs_of(node).moves.alter(A0, target)
    await cluster.until(lambda: all(lag == 0 for _, _, lag in logs_of(node).moves.copies()), "a complete copy")
    found = {one.path: one.replicas for one in await describe_log_dirs(broker_of(node).context, None)}
    assert [(it.tp, it.is_copy, it.offset_lag) for it in found[target]] == [(A0, True, 0)]
    assert [(it.tp, it.is_copy) for it in found[home]] == [(A0, False)]
    assert found[target][0].size_bytes == found[home][0].size_bytes > 0


async def test_jb_09_what_is_refused(tmp_path: Path) -> None:
    cluster, node, home, target = await with_a_replica(tmp_path)
    moves = logs_of(node).moves

    def code(tp: TopicPartition, path: str) -> ErrorCode:
        try:
            moves.alter(tp, path)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    assert code(A0, "/elsewhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert code(TopicPartition("x" * 215, 0), target) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code(A0, home) is ErrorCode.NONE and copies(node) == []
    assert code(TopicPartition("b", 0), target) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await cluster.create_topic("b", replicas=2)
    assert logs_of(node).directory_of(TopicPartition("b", 0)) == target, "it was remembered"
    state = next(state for state in logs_of(node)._dirs if state.path == target)
    logs_of(node)._fail(state, OSError(5, "gone"))
    assert code(A0, target) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code(TopicPartition("b", 0), home) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_qu_10_a_move_copies_as_fast_as_the_broker_may(tmp_path: Path) -> None:
    """Nothing is copied while the bytes of the last windows are over the bound, and what was begun ends when it is lifted."""
    cluster, node, home, target = await with_a_replica(tmp_path)
    moves = logs_of(node).log_moves
    log = logs_of(node).get(A0)
    assert log is not None
    await set_bound(cluster, node, "1")
    await cluster.until(lambda: moves.throttle.bound == 1, "the bound")
    hold(node)
    logs_of(node).moves.alter(A0, target)
    await cluster.until(lambda: (move := moves.get(A0)) is not None and move.copy.leo == log.leo, "the first bytes")
    assert await cluster.produce("a", "held back") is ErrorCode.NONE
    await cluster.clock.run_for(5_000)
    move = moves.get(A0)
    assert move is not None and move.copy.leo < log.leo and logs_of(node).directory_of(A0) == home
    await set_bound(cluster, node, None)
    await cluster.until(lambda: moves.throttle.bound is None, "no bound")
    await cluster.until(lambda: move.copy.leo == log.leo, "the rest")


async def set_bound(cluster: MemCluster, node: MemNode, value: str | None) -> None:
    operation = AlterConfigOp.DELETE if value is None else AlterConfigOp.SET
    change = ConfigChange(name=MOVES_RATE, op=int(operation), value=value)
    name = str(node.node_id)
    resource = ConfigResourceChange(resource_type=ConfigResourceType.BROKER, resource_name=name, changes=(change,))
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=10_000)
    answer = await cluster.call(alter_configs(broker_of(node).context, request), "the change")
    assert [one.error for one in answer.resources] == [ErrorCode.NONE]


async def test_cp_14_a_directory_that_fails_while_it_is_described_is_told_once(tmp_path: Path) -> None:
    cluster, node, home, other = await with_a_replica(tmp_path)
    await cluster.create_topic("b", partitions=4)
    await cluster.until(lambda: len(logs_of(node).logs()) >= 3, "logs of b, too")
    logs, context = logs_of(node), broker_of(node).context
    context.turns = Turns(context.ports.clock, turn_ms=0)
    description = asyncio.ensure_future(describe_log_dirs(context, None))
    await asyncio.sleep(0)
    assert not description.done(), "it waits for its next turn"
    logs._fail(next(state for state in logs._dirs if state.path == home), OSError(5, "gone"))
    told = [(it.path, it.error) for it in await description]
    assert told == [(other, ErrorCode.NONE), (home, ErrorCode.KAFKA_STORAGE_ERROR)]
