"""What is deleted stays as long as it is configured, and no longer, or the checker says so (LG-38)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kraftlite.broker.log_dirs import LogDirs
from kraftlite.log.log import Log
from kraftlite.runtime.ports import Disk
from kraftlite.runtime.trace.log import SegmentDeleted
from kraftlite.sim.checkers.base import CheckerFactory, Violation
from kraftlite.sim.checkers.i98_deleted_files import DeletedFilesWait
from tests.harness.orders_cluster import TP, Orders
from tests.harness.violations import Cases, assert_found


class Deleting(Orders):
    """Three records of the leader are in a closed segment, which may be deleted."""

    @property
    def checker(self) -> DeletedFilesWait:
        return next(it for it in self.checkers if isinstance(it, DeletedFilesWait))

    @property
    def dirs(self) -> LogDirs:
        assert self.leader.node is not None and self.leader.node.broker is not None
        return self.leader.node.broker.log_dirs

    @property
    def disk(self) -> Disk:
        """As the leader has it, not as the simulation does."""
        return self.dirs._ports.disk

    @property
    def closed(self) -> Log:
        log = self.log(self.leader)
        log.on_roll = None  # nothing runs beside the test
        log.roll()
        log.flush_sync()
        return log

    def delays(self, delay_ms: int) -> Log:
        log = self.closed
        log.update_config(replace(log.config, file_delete_delay_ms=delay_ms))
        return log

    def now_ms(self) -> int:
        assert self.leader.now is not None
        return self.leader.now.clock.now_ms()

    def delete_topic(self) -> None:
        """As the broker does that hears of it."""

        async def delete() -> None:
            self.dirs.delete(TP)

        self.do(delete())

    def purge_soon(self, log: Log) -> None:
        async def purge() -> None:
            self.dirs.purge_soon(log)

        self.do(purge())

    def settle(self) -> None:
        self.go(1)
        left = self.checker.unsettled()
        if left is not None:
            self.checker.fail(left)


CASES: Cases[Deleting] = Cases()


@pytest.fixture
def make() -> Iterator[Callable[..., Deleting]]:
    made: list[Deleting] = []

    def start(*factories: CheckerFactory) -> Deleting:
        made.append(Deleting(*factories))
        made[-1].start()
        return made[-1]

    yield start
    for cluster in made:
        cluster.close()


@CASES.breaks(DeletedFilesWait, r"removes .*/00000000000000000000\.\w+\.deleted after \d+ ms; 60000 are configured")
def a_segment_is_removed_at_once(cluster: Deleting) -> None:
    log = cluster.closed
    log.delete_segments_before(3, reason="retention.ms")
    log.deleted.purge(cluster.now_ms(), force=True)
    cluster.go(1_000)


@CASES.breaks(DeletedFilesWait, r"deleted after 29\d\d\d ms; 60000 are configured")
def a_segment_is_removed_too_early(cluster: Deleting) -> None:
    log = cluster.closed
    log.delete_segments_before(3, reason="retention.ms")
    cluster.go(29_500)
    log.deleted.purge(cluster.now_ms(), force=True)
    cluster.go(1_000)


@CASES.breaks(DeletedFilesWait, "has deleted segment 0 of orders-0: there is no ")
def a_segment_is_removed_without_a_delay(cluster: Deleting) -> None:
    log = cluster.closed
    log.segments[0].unlink()
    log._ctx.tracer.emit(SegmentDeleted(tp=TP, base_offset=0, size_bytes=1, reason="retention.ms"))
    cluster.go(1)


@CASES.breaks(DeletedFilesWait, r"still has .*/00000000000000000000\.\w+\.deleted after 1\d\d\d ms; 300 are configured")
def a_segment_stays(cluster: Deleting) -> None:
    cluster.delays(300).delete_segments_before(3, reason="retention.ms")
    cluster.go(1_400)
    cluster.settle()


@CASES.breaks(DeletedFilesWait, r"/orders-0\.[0-9a-f]+-delete after \d+ ms; 60000 are configured")
def a_log_is_removed_at_once(cluster: Deleting) -> None:
    cluster.delete_topic()
    name = next(it for it in cluster.disk.listdir(cluster.leader.config.log_dirs[0]) if it.endswith("-delete"))
    cluster.disk.rmtree(f"{cluster.leader.config.log_dirs[0]}/{name}")
    cluster.go(1_000)


@CASES.breaks(DeletedFilesWait, r"still has .*/orders-0\.[0-9a-f]+-delete after")
def a_log_stays(cluster: Deleting) -> None:
    cluster.delays(0)
    cluster.dirs._retire = lambda state, log: None  # type: ignore[method-assign]
    cluster.delete_topic()
    cluster.go(1_400)
    cluster.settle()


@CASES.breaks(DeletedFilesWait, r"removes .*/00000000000000000000\.log at once, in whose place a compacted segment comes")
def a_segment_is_removed_that_was_compacted(cluster: Deleting) -> None:
    path = cluster.closed.segments[0].path
    file = cluster.disk.open(f"{path}.cleaned", create=True)
    file.close()
    cluster.disk.rename(f"{path}.cleaned", f"{path}.swap")
    cluster.disk.unlink(path)
    cluster.go(1_000)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(
    make: Callable[..., Deleting], checker: CheckerFactory, violate: Callable[[Deleting], Any], words: str
) -> None:
    assert_found(make(checker), checker, violate, words)


def test_what_goes_when_its_delay_is_over_is_settled(make: Callable[..., Deleting]) -> None:
    cluster = make(DeletedFilesWait)
    log = cluster.delays(2_000)
    log.delete_segments_before(3, reason="retention.ms")
    cluster.purge_soon(log)
    cluster.go(1_900)
    assert len(log.deleted) == 1 and cluster.checker.judged == 0
    cluster.go(1_000)
    assert len(log.deleted) == 0 and cluster.checker.judged > 0
    cluster.delete_topic()
    judged = cluster.checker.judged
    cluster.go(3_500)
    assert cluster.checker.judged == judged + 1
    cluster.settle()


def test_a_start_removes_what_it_finds(make: Callable[..., Deleting]) -> None:
    cluster = make(DeletedFilesWait)
    cluster.closed.delete_segments_before(3, reason="retention.ms")
    cluster.delete_topic()
    node = cluster.leader.node_id
    cluster.kill(node)
    cluster.boot(node)
    cluster.go(2_000)
    cluster.settle()
    assert not [it for it in cluster.node(node).disk.tree() if "-delete" in it]


def test_a_file_may_go_with_an_earlier_one_of_its_name(make: Callable[..., Deleting]) -> None:
    """A removal that has begun knows the file by its name."""
    cluster = make(DeletedFilesWait)
    path = cluster.closed.segments[0].path
    for _ in range(2):
        cluster.disk.open(path, create=True).close()
        cluster.disk.rename(path, f"{path}.deleted")
        cluster.go(40_000)
    cluster.disk.unlink(f"{path}.deleted")
    cluster.go(1_000)
    assert cluster.checker.judged == 1


def remove_snapshot(cluster: Deleting) -> None:
    path = f"{cluster.leader.config.metadata_log_dir}/__cluster_metadata-0/{1:020}-{1:010}.checkpoint"
    cluster.disk.open(path, create=True).close()
    cluster.disk.rename(path, f"{path}.deleted")
    cluster.disk.unlink(f"{path}.deleted")
    cluster.go(1_000)


def test_a_snapshot_that_is_removed_at_once_is_found(make: Callable[..., Deleting]) -> None:
    cluster = make(DeletedFilesWait)
    with pytest.raises(Violation, match=r"checkpoint\.deleted after \d ms; 60000 are configured"):
        remove_snapshot(cluster)


def test_a_start_removes_snapshots_that_a_crash_has_left_at_once(make: Callable[..., Deleting]) -> None:
    cluster = make(DeletedFilesWait)
    assert cluster.leader.now is not None
    cluster.leader.now.starting = None  # it is still at it
    remove_snapshot(cluster)
