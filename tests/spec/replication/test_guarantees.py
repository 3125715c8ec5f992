"""RP-42 to RP-45: what a client may rely on, and where it ends. The random versions are in tests/sim/replication."""

from __future__ import annotations

import errno
import itertools
from typing import cast

import pytest

from kraftlite.log.config import LogConfig
from kraftlite.log.log import Log
from kraftlite.model.errors import ErrorCode
from kraftlite.replication.follower_state import reset_to_leader_range
from tests.harness.replication_cluster import TOPIC_ID, TP, StepCluster, log_values, read_values
from tests.spec.replication.test_followers import diverged


def safe_cluster() -> StepCluster:
    c = StepCluster(log_config=LogConfig(min_insync_replicas=2))
    c.create()
    c.replicate()
    return c


@pytest.mark.parametrize(("victim", "kind"), list(itertools.product((1, 2, 3), ("crash", "power", "pause"))))
def test_rp_42_one_failure_loses_no_acknowledged_record(victim: int, kind: str) -> None:
    c = safe_cluster()
    first = c[1].produce(["a"], acks=-1)
    c.replicate()
    assert first[0].error is ErrorCode.NONE
    c[1].produce(["unacknowledged"], acks=-1)
    if kind in ("crash", "power"):
        c[victim].crash(lose_page_cache=kind == "power")
    c[victim].up = False
    c.controller.set_fenced(c[victim].id, True)
    c.publish()
    c.replicate()
    c.settle_isr()
    leader = c.leader()
    assert leader.id != victim
    second = leader.produce(["b"], acks=-1)
    c.replicate()
    assert second[0].error is ErrorCode.NONE
    if kind in ("crash", "power"):
        c.restart(victim)
    else:
        c[victim].up = True
        c.publish()
        c.controller.set_fenced(c[victim].id, False)
        c.publish()
    for _ in range(3):
        c.replicate()
        c.settle_isr()
    logs = [log_values(node.log()) for node in c.nodes.values()]
    assert logs[0] == logs[1] == logs[2]
    values = [value for _, value in logs[0]]
    assert values.index("a") < values.index("b") and len(values) == len(set(values))
    assert sorted(c.controller.registration().isr) == [1, 2, 3]


def test_rp_43_what_was_read_stays() -> None:
    c = safe_cluster()
    c[1].produce(["a"], acks=-1)
    c.replicate()
    c[1].produce(["never committed"], acks=1)
    seen = read_values(c[1].consume(0).records)
    assert seen == [(0, "a")]
    c[1].up = False
    c.controller.set_fenced(c[1].id, True)
    c.publish()
    c[2].produce(["b"], acks=-1)
    c.replicate()
    c[1].up = True
    c.publish()
    c.replicate()
    for node in c.nodes.values():
        assert read_values(node.consume(0).records)[:1] == seen
        assert "never committed" not in [value for _, value in log_values(node.log())]


def test_rp_44_a_member_that_lost_its_page_cache_joins_only_after_it_has_everything_again() -> None:
    """What ELR adds (a former member as the cleanly elected leader) is the controller's; the replicas owe this part."""
    c = safe_cluster()
    c[1].produce(["a"], acks=-1)
    c.replicate()
    c[3].crash()
    c.restart(3)
    assert c[3].log().leo == 0 and 3 not in c.controller.registration().isr
    c.fetch(3)
    c.settle_isr()
    assert 3 not in c.controller.registration().isr
    c.fetch(3)
    c.settle_isr()
    assert 3 in c.controller.registration().isr and log_values(c[3].log()) == [(0, "a")]


def test_rp_45_without_elr_the_last_member_takes_its_lost_tail_with_it() -> None:
    c = StepCluster(2)
    c.create((1, 2))
    c.replicate()
    c[1].produce(["a"], acks=-1)
    c.replicate()
    c.controller.set_fenced(c[2].id, True)
    c.publish()
    c[1].crash()
    c.controller.set_fenced(c[1].id, True)
    c.publish()
    c.restart(1)
    c.controller.set_fenced(c[2].id, False)
    c.publish()
    c.replicate()
    assert c.leader().id == 1 and log_values(c[1].log()) == log_values(c[2].log()) == []


@pytest.mark.parametrize("again", ["the ISR changes", "a new leader epoch"])
def test_rp_33_a_replica_that_could_not_be_made_is_fetched_once_it_is_there(again: str) -> None:
    """Its directory failed when it was to be made, and with the next change of its partition it gets a place in another one."""
    c = StepCluster()
    c[3].logs.failed = True
    c.create()
    assert c[3].partition().log is None and c[3].manager.fetched_from(TP) is None
    c[3].logs.failed = False
    if again == "the ISR changes":
        c.controller.leave_isrs(c[3].id)
    else:
        c.controller.elect(c[2].id)
    c.publish()
    assert c[3].manager.fetched_from(TP) == c.leader().id
    c.leader().produce(["a"], acks=1)
    c.replicate()
    c.settle_isr()
    assert log_values(c[3].log()) == [(0, "a")] and c.controller.registration().isr == (1, 2, 3)


class Unreadable:
    """A log whose records cannot be read for what is undecided above the high watermark."""

    topic_id = TOPIC_ID

    def update_hw(self, hw: int) -> None:
        raise OSError(errno.EIO, "Input/output error", "00000000000000000000.log")


def test_jb_07_a_replica_whose_log_cannot_be_read_at_the_start_is_offline_with_its_directory() -> None:
    """Its disk failed between opening the log and taking up the high watermark: there is no log with a reason to be offline."""
    c = StepCluster()
    c[3].logs.open_logs[TP] = cast(Log, Unreadable())
    c.create()
    partition = c[3].partition()
    partition.check()
    assert partition.log is None and "Input/output error" in str(partition.offline_reason)
    assert c[3].logs.failed, "the directory goes offline, so that the controller is told"
    assert c[3].manager.fetched_from(TP) is None


def test_rp_31_what_the_leader_has_deleted_is_not_kept_where_the_logs_part_above_it() -> None:
    """The former leader has other records there, which were never committed, and could be elected before it hears of the log
    start: consumers would read them where they had read the leader's."""
    c = diverged()
    c[2].log().update_hw(3)
    assert c[2].log().increment_log_start(3, "retention.ms")
    c[1].catch_up()
    assert [offset for offset, _ in log_values(c[1].log())] == [0, 1, 2, 3, 4]
    request = c[1].fetch_request(c[2].id)
    assert request is not None
    response = c[2].serve_fetch(request)
    (said,) = response.partitions
    assert said.diverging_epoch is not None and said.diverging_epoch.end_offset == 3
    c[1].take_response(c[2].id, response)
    log = c[1].log()
    assert (log.log_start_offset, log.hw, log.leo) == (3, 3, 3) and not log.size_bytes
    c[2].produce(["d"], acks=1)
    c.replicate()
    assert log_values(c[1].log()) == log_values(c[2].log()) == [(3, "d")]


@pytest.mark.parametrize(("start", "ends"), [(3, (3, 3, 0)), (2, (0, 2, 2))])
def test_rp_35_beyond_a_leader_that_has_nothing_the_log_begins_as_the_leaders(start: int, ends: tuple[int, int, int]) -> None:
    """Else it is cut, and a batch goes as a whole."""
    log = diverged()[1].log()
    assert reset_to_leader_range(log, start, 3) == ends[1]
    assert (log.log_start_offset, log.leo, len(log_values(log))) == ends
