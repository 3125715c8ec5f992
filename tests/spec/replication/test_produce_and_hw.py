"""RP-01 to RP-18: acknowledgements, high watermark, log end offset."""

from __future__ import annotations

from kraftlite.log.config import LogConfig
from kraftlite.model.errors import ErrorCode
from kraftlite.replication.api import ProduceEntry, ProduceResult
from kraftlite.replication.follower_state import adopt_leader_offsets
from tests.harness.replication_cluster import TP, Node, StepCluster, log_values, make_batch, read_values


def cluster(min_isr: int = 1, count: int = 3, **options: object) -> StepCluster:
    return StepCluster(count, log_config=LogConfig(min_insync_replicas=min_isr), **options)  # type: ignore[arg-type]


def committed(c: StepCluster, *values: str) -> None:
    """Write at the leader and replicate everywhere."""
    c.leader().produce(values, acks=1)
    c.replicate()


def test_rp_01_acks_decide_when_a_produce_is_answered() -> None:
    c = cluster()
    c.create()
    c.replicate()
    assert c[1].produce(["a"], acks=0)[0].error is ErrorCode.NONE
    assert c[1].produce(["b"], acks=1)[0].base_offset == 1
    waiting = c[1].produce(["c"], acks=-1)
    assert not waiting
    c.replicate()
    assert waiting[0].error is ErrorCode.NONE and waiting[0].base_offset == 2
    refused = c[1].produce(["d"], acks=2)
    assert refused[0].error is ErrorCode.INVALID_REQUIRED_ACKS and c[1].log().leo == 3


def test_rp_02_too_few_in_sync_replicas_append_nothing() -> None:
    c = cluster(min_isr=2)
    c.create(isr=(1,))
    assert c[1].produce(["a"], acks=-1)[0].error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert c[1].log().leo == 0
    assert c[1].produce(["a"], acks=1)[0].error is ErrorCode.NONE


def test_rp_03_an_isr_that_falls_below_min_isr_fails_what_waits_and_keeps_the_record() -> None:
    c = cluster(min_isr=2)
    c.create()
    c.replicate()
    waiting = c[1].produce(["a"], acks=-1)
    c.tick(10_001)
    c.settle_isr()
    assert waiting[0].error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    c.replicate()
    c.settle_isr()
    c.replicate()
    assert read_values(c[1].consume(0).records) == [(0, "a")]


def test_rp_04_a_timeout_leaves_the_record() -> None:
    c = cluster()
    c.create()
    c.replicate()
    waiting = c[1].produce(["a"], acks=-1, timeout_ms=1_000)
    c.clock.advance(990)
    assert not waiting
    c.clock.advance(30)
    assert waiting[0].error is ErrorCode.REQUEST_TIMED_OUT
    assert c[1].log().leo == 1 and not c[1].partition().waiting.queue
    c.replicate()
    assert len(waiting) == 1


def until_known(node: Node, late: list[ErrorCode], value: str, timeout_ms: int = 30_000) -> list[ProduceResult]:
    """A produce that waits for its fate; `late` fills when it is told that it is late."""
    done: list[ProduceResult] = []
    entry = ProduceEntry(tp=TP, topic_id=None, records=make_batch([value]))
    node.manager.append([entry], acks=-1, timeout_ms=timeout_ms, on_done=done.extend, on_late=late.append)
    return done


def test_rp_04_who_waits_for_a_fate_is_told_once_of_being_late_and_then_of_the_fate() -> None:
    c = cluster()
    c.create()
    c.replicate()
    late: list[ErrorCode] = []
    done = until_known(c[1], late, "a", timeout_ms=1_000)
    plain = c[1].produce(["b"], acks=-1, timeout_ms=1_000)
    c.clock.advance(5_000)
    assert late == [ErrorCode.REQUEST_TIMED_OUT] and plain[0].error is ErrorCode.REQUEST_TIMED_OUT and not done
    c[1].partition().check()
    c.replicate()
    assert done[0].error is ErrorCode.NONE and done[0].base_offset == 0 and len(late) == 1
    assert not c[1].partition().waiting.queue


def test_rp_03_who_waits_for_a_fate_outlasts_an_isr_below_min_isr_and_not_its_leader() -> None:
    c = cluster(min_isr=2)
    c.create()
    c.replicate()
    late: list[ErrorCode] = []
    done = until_known(c[1], late, "a")
    plain = c[1].produce(["b"], acks=-1)
    c.tick(10_001)
    c.settle_isr()
    assert plain[0].error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert late == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND] and not done
    c[1].partition().check()
    c.replicate()
    c.settle_isr()
    c.replicate()
    assert done[0].error is ErrorCode.NONE and len(late) == 1
    lost = until_known(c[1], late, "c")
    c.clock.advance(31_000)
    c.controller.elect(2)
    c.publish()
    assert lost[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER and len(late) == 2


def test_rp_05_min_isr_is_capped_by_the_replica_count() -> None:
    c = cluster(min_isr=2)
    c.create((1,))
    assert c[1].produce(["a"], acks=-1)[0].error is ErrorCode.NONE
    assert c[1].log().hw == 1


def test_rp_06_the_hw_stands_still_while_the_isr_is_below_min_isr() -> None:
    c = cluster(min_isr=2)
    c.create(isr=(1,))
    c[1].produce(["a"], acks=1)
    assert c[1].log().hw == 0 and c[1].consume(0).records == b""
    c.fetch(2)
    c.fetch(2)
    assert c[1].log().hw == 0, "an expansion that is only proposed is not yet an ISR"
    c.settle_isr()
    assert c[1].log().hw == 1 and read_values(c[1].consume(0).records) == [(0, "a")]


def test_rp_07_acknowledged_offsets_are_dense_and_where_the_record_is() -> None:
    c = cluster()
    c.create((1,))
    bases = [c[1].produce(values, acks=-1)[0].base_offset for values in (["a"], ["b", "c"], ["d"])]
    assert bases == [0, 1, 3]
    assert log_values(c[1].log()) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]


def test_rp_08_acknowledged_writes_keep_their_order() -> None:
    c = cluster()
    c.create()
    c.replicate()
    order: list[str] = []
    for value in "abc":
        c[1].produce([value], acks=-1, on_done=lambda result, value=value: order.append(value))  # type: ignore[misc]
    c.replicate()
    assert order == ["a", "b", "c"] == [value for _, value in log_values(c[1].log())]


def test_rp_08_a_duplicate_is_acknowledged_when_its_original_is_committed() -> None:
    c = cluster()
    c.create()
    c.replicate()
    first = c[1].produce([], acks=-1, batch=make_batch(["a"], pid=7, seq=0))
    second = c[1].produce([], acks=-1, batch=make_batch(["b"], pid=7, seq=1))
    again = c[1].produce([], acks=-1, batch=make_batch(["a"], pid=7, seq=0))
    assert not first and not again
    c.replicate()
    assert again[0].base_offset == first[0].base_offset == 0 and second[0].base_offset == 1
    assert c[1].log().leo == 2


def test_rp_09_losing_leadership_answers_waiting_produces() -> None:
    c = cluster()
    c.create()
    waiting = c[1].produce(["a"], acks=-1)
    c.controller.elect(c[2].id)
    c.publish()
    assert waiting[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_rp_10_errors_of_leadership_say_who_leads() -> None:
    c = cluster()
    c.create()
    hint = c[2].produce(["a"], acks=1)[0].leader
    assert hint is not None and (hint.leader_id, hint.leader_epoch) == (1, 0)
    fenced = c[1].consume(0, leader_epoch=-5)
    assert fenced.error is ErrorCode.FENCED_LEADER_EPOCH and fenced.leader is not None and fenced.leader.leader_id == 1
    c4 = cluster(count=4)
    c4.create((1, 2, 3))
    elsewhere = c4[4].produce(["a"], acks=1)[0]
    assert elsewhere.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert elsewhere.leader is not None and elsewhere.leader.leader_id == 1


def test_rp_11_the_leader_learns_progress_only_from_the_next_fetch() -> None:
    c = cluster()
    c.create()
    c.replicate()
    c[1].produce(["a"], acks=1)
    c.fetch(2)
    c.fetch(3)
    followers = c[1].partition().leader.followers
    assert c[2].log().leo == 1 and followers[c[2].id].leo == 0 and c[1].log().hw == 0
    c.fetch(2)
    assert followers[c[2].id].leo == 1 and c[1].log().hw == 0
    c.fetch(3)
    assert c[1].log().hw == 1


def test_rp_11_the_hw_waits_for_a_replica_that_is_about_to_join() -> None:
    """3 is caught up and eligible, and cannot be proposed only because the proposal of 2 is under way."""
    c = cluster()
    c.create(isr=(1,))
    c.fetch(2)
    c.fetch(3)
    assert c[1].partition().leader.isr.maximal == (1, 2)
    c[1].produce(["a"], acks=1)
    c.fetch(2)
    c.fetch(2)
    assert c[1].log().hw == 0
    c.fetch(3)
    c.fetch(3)
    assert c[1].log().hw == 1


def test_rp_12_expansions_count_at_once_and_shrinks_when_committed() -> None:
    c = cluster()
    c.create(isr=(1, 2))
    c.replicate()
    isr = c[1].partition().leader.isr
    assert isr.committed == (1, 2) and isr.maximal == (1, 2, 3)
    c.settle_isr()
    assert isr.committed == isr.maximal == (1, 2, 3) and isr.pending is None
    c[1].produce(["a"], acks=1)
    c.fetch(2)
    c.fetch(2)
    c.tick(10_001)
    assert isr.pending is not None and isr.maximal == (1, 2, 3)
    c.fetch(2)
    assert c[1].log().hw == 0
    c.settle_isr()
    assert isr.maximal == (1, 2) and c[1].log().hw == 1


def test_rp_13_consumers_read_below_the_hw_and_replicas_to_the_leo() -> None:
    c = cluster()
    c.create()
    committed(c, "a")
    c[1].produce(["b"], acks=1)
    assert read_values(c[1].consume(0).records) == [(0, "a")]
    c.fetch(2)
    assert log_values(c[2].log()) == [(0, "a"), (1, "b")]
    found = c[1].consume(0, read_committed=True)
    assert found.aborted == () and found.last_stable_offset == 1


def test_rp_14_a_new_leader_does_not_know_the_latest_offset_before_its_hw_is_there() -> None:
    c = cluster()
    c.create()
    c[1].produce(["a"], acks=1)
    c.replicate(2)
    assert c[1].log().hw == 1 and c[2].log().hw == 0
    c.controller.elect(c[2].id)
    c.publish()

    def latest(timestamp: int = -1, **options: bool) -> tuple[ErrorCode, int]:
        found = c[2].manager.list_offset(
            TP, None, timestamp, current_leader_epoch=None, read_committed=False, **options
        )  # fmt: skip
        return found.error, found.offset

    assert latest() == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert latest(version5_plus=False) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert latest(timestamp=10**15) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert latest(timestamp=-2) == (ErrorCode.NONE, 0)
    c.replicate()
    assert latest() == (ErrorCode.NONE, 1)
    assert latest(timestamp=10**15) == (ErrorCode.NONE, -1)


def test_rp_15_the_hw_travels_without_data_and_is_bounded_by_the_followers_leo() -> None:
    c = cluster()
    c.create()
    committed(c, "a")
    response = c.fetch(2)
    assert c[2].log().hw == 1 and response is not None and response[1].payload == b""
    adopt_leader_offsets(c[2].partition(), c[2].log(), 5, 0)
    assert c[2].log().hw == 1


def test_rp_16_the_hw_starts_from_its_checkpoint() -> None:
    c = cluster()
    c.create((1,))
    c[1].produce(["a", "b"], acks=1)
    c[1].manager._hws.write()
    c[1].produce(["c"], acks=1)
    c[1].crash(lose_page_cache=False)
    c.controller.set_fenced(c[1].id, True)
    c.restart(1, unfence=False)
    assert c[1].log().leo == 3 and c[1].log().hw == 2


def test_rp_16_a_checkpointed_hw_is_capped_by_the_leo() -> None:
    c = cluster()
    c.create((1,))
    c[1].produce(["a", "b"], acks=1)
    c[1].manager._hws.write()
    c[1].crash()
    c.controller.set_fenced(c[1].id, True)
    c.restart(1, unfence=False)
    assert c[1].log().leo == 0 and c[1].log().hw == 0


def test_rp_17_a_followers_log_start_follows_the_leaders_up_to_its_hw() -> None:
    c = cluster()
    c.create()
    committed(c, "a", "b")
    c.replicate(1)
    log = c[2].log()
    adopt_leader_offsets(c[2].partition(), log, 2, 9)
    assert log.log_start_offset == 0
    c[1].log().increment_log_start(1, "asked")
    c[1].partition().log_start_changed(urgent=True)
    c.fetch(2)
    assert log.log_start_offset == 1
