"""RP-19 to RP-26: who is in sync, and how the ISR changes."""

from __future__ import annotations

import pytest

from kraftlite.log.config import LogConfig
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import AlterPartitionRequest, AlterPartitionResponse, AlterPartitionResult
from kraftlite.replication.follower_progress import FollowerProgress
from tests.harness.replication_cluster import TOPIC, TOPIC_ID, StepCluster


def answer(error: ErrorCode, **fields: object) -> AlterPartitionResponse:
    result = AlterPartitionResult(topic_id=TOPIC_ID, partition=0, error=error, **fields)  # type: ignore[arg-type]
    return AlterPartitionResponse(partitions=(result,))


def proposing(**options: object) -> StepCluster:
    """2 has caught up and its joining is proposed; the request is with the controller."""
    c = StepCluster(2)
    c.create((1, 2), isr=(1,), leader_epoch=3, partition_epoch=5)
    c.fetch(2)
    assert c[1].alter_request() is not None
    return c


def test_rp_19_a_replica_is_caught_up_at_the_leo_or_for_the_allowed_lag_after() -> None:
    follower = FollowerProgress(NodeId(2), 1_000)
    follower.fetched(5, 0, 1, 5, 2_000)
    assert follower.is_caught_up(5, 999_999, 10_000)
    assert follower.is_caught_up(6, 12_000, 10_000)
    assert not follower.is_caught_up(6, 12_001, 10_000)


def test_rp_19_a_laggard_leaves_and_an_idle_follower_stays() -> None:
    c = StepCluster()
    c.create()
    c.replicate()
    c.tick(100_000)
    c.settle_isr()
    assert c.controller.registration().isr == (1, 2, 3), "nothing to fetch: everyone has everything"
    c.fetch(2)
    c.fetch(3)
    c[1].produce(["a"], acks=1)
    c.fetch(2)
    c.fetch(2)
    c.tick(10_000)
    c.settle_isr()
    assert c.controller.registration().isr == (1, 2, 3)
    c.tick(1)
    c.settle_isr()
    assert c.controller.registration().isr == (1, 2)


def test_rp_19_an_idle_session_fetch_counts_as_caught_up_at_its_time() -> None:
    """A follower that names nothing says that it is where it was; the append that comes later starts its clock from there."""
    c = StepCluster()
    c.create()
    c.replicate()
    c.clock.advance(50_000)
    c.fetch(2)
    c[1].produce(["a"], acks=1)
    assert c[1].partition().leader.followers[c[2].id].last_caught_up_ms == 50_000
    assert c[1].partition().leader.followers[c[3].id].last_caught_up_ms == 0


def test_rp_20_a_follower_that_keeps_pace_stays() -> None:
    follower = FollowerProgress(NodeId(2), 0)
    for step in range(10):
        follower.fetched(step * 10, 0, 1, (step + 1) * 10, step * 5_000)
    assert follower.last_caught_up_ms == 8 * 5_000
    assert follower.is_caught_up(110, 49_000, 10_000)
    lagging = FollowerProgress(NodeId(3), 0)
    for step in range(10):
        lagging.fetched(step * 5, 0, 1, (step + 1) * 10, step * 5_000)
    assert not lagging.is_caught_up(110, 49_000, 10_000)


def test_rp_21_who_is_below_the_hw_does_not_join() -> None:
    c = StepCluster(2)
    c.create((1, 2), isr=(1,))
    c[1].produce(["a"], acks=1)
    c.fetch(2)
    assert c[1].alter_request() is None
    c.fetch(2)
    assert c[1].alter_request() is not None


@pytest.mark.parametrize("why", ["fenced", "shutting down", "another incarnation", "not registered"])
def test_rp_21_who_may_not_lead_does_not_join(why: str) -> None:
    c = StepCluster(2)
    c.create((1, 2), isr=(1,))
    if why == "fenced":
        c.controller.set_fenced(c[2].id, True)
        c.publish()
    elif why == "another incarnation":
        c[2].broker_epoch = 999
    elif why == "shutting down":
        from kraftlite.metadata.records import BrokerRegistrationChangeRecord

        c.controller.write(
            BrokerRegistrationChangeRecord(broker_id=c[2].id, broker_epoch=c[2].broker_epoch, in_controlled_shutdown=True)
        )
        c.publish()
    else:
        from kraftlite.metadata.records import UnregisterBrokerRecord

        c.controller.write(UnregisterBrokerRecord(broker_id=c[2].id, broker_epoch=c[2].broker_epoch))
        c.publish()
    c.fetch(2)
    c.fetch(2)
    assert c[1].alter_request() is None


def test_rp_21_an_idle_follower_joins_when_it_is_unfenced() -> None:
    c = StepCluster(2)
    c.create((1, 2), isr=(1,))
    c.controller.set_fenced(c[2].id, True)
    c.publish()
    c.fetch(2)
    c.controller.set_fenced(c[2].id, False)
    c.publish()
    assert c[1].alter_request() is not None


def test_rp_21_progress_of_an_older_leader_epoch_is_forgotten() -> None:
    """Also when a replica is removed and added again and the leader learns both at once: see remove_and_add.scn."""
    c = StepCluster()
    c.create()
    c.replicate()
    c.controller.elect(c[1].id)
    c[1].catch_up()
    assert all(follower.leo is None for follower in c[1].partition().leader.followers.values())


def test_rp_22_one_change_per_partition_and_one_request_per_broker() -> None:
    c = proposing()
    partition = c[1].partition()
    pending = partition.pending_isr
    c[1].produce(["a"], acks=1)
    c.tick(60_000)
    c.fetch(2)
    assert partition.pending_isr is pending and c[1].alter_request() is None
    c[1].take_alter(None)
    again = c[1].alter_request()
    assert again is not None and again.partitions == (pending.item,)


def test_rp_21_who_is_taken_out_by_a_failure_is_not_proposed_before_it_is_fenced() -> None:
    """The partitions come before the record that fences their broker, and of thousands much earlier."""
    c = StepCluster()
    c.create()
    c.replicate()
    c.controller.leave_isrs(c[3].id)
    c.publish()
    partition = c[1].partition()
    assert partition.committed_isr == (1, 2) and partition.pending_isr is None
    partition.check_isr(c.clock.now_ms())
    assert partition.pending_isr is None, "nor by the look at who lags, which may come in between"
    c.controller.set_fenced(c[3].id, True)
    c.publish()
    assert c[1].alter_request() is None


def test_rp_21_a_fencing_that_is_heard_of_together_with_its_end_keeps_nobody_out() -> None:
    """Nothing about the broker has changed then, and a partition that nobody writes to is not fetched by name again."""
    c = StepCluster()
    c.create()
    c.replicate()
    c.controller.leave_isrs(c[3].id)
    c.publish()
    partition = c[1].partition()
    assert partition.committed_isr == (1, 2) and partition.pending_isr is None
    partition.check_isr(c.clock.now_ms() + 60_000)
    assert partition.pending_isr is not None and partition.pending_isr.added == (3,)


@pytest.mark.parametrize("lives", ["fetches", "registrations change"])
def test_rp_21_who_is_taken_out_and_lives_is_proposed_at_its_next_sign(lives: str) -> None:
    c = StepCluster()
    c.create()
    c.replicate()
    c.controller.leave_isrs(c[3].id)
    c.publish()
    assert c[1].partition().pending_isr is None
    if lives == "fetches":
        c[1].produce(["a"], acks=1)
        c.fetch(3)
        c.fetch(3)
    else:
        c.controller.set_fenced(c[3].id, True)
        c.publish()
        c.controller.set_fenced(c[3].id, False)
        c.publish()
    c.settle_isr()
    assert c.controller.registration().isr == (1, 2, 3)


def test_rp_21_who_is_taken_out_and_fetches_while_another_joins_is_proposed_behind_it() -> None:
    """Its fetch may be the only one that names the partition: nothing new comes."""
    c = StepCluster()
    c.create()
    c.replicate()
    c.controller.leave_isrs(c[2].id)
    c.controller.leave_isrs(c[3].id)
    c.publish()
    partition = c[1].partition()
    assert partition.committed_isr == (1,) and partition.pending_isr is None
    now_ms, leo = c.clock.now_ms(), partition.log.leo
    for broker_id in (2, 3):
        partition.follower_fetched(c[broker_id].id, c[broker_id].broker_epoch, leo, 0, now_ms)
    assert partition.pending_isr.added == (2,)
    c.settle_isr()
    assert c.controller.registration().isr == (1, 2, 3)


def test_rp_21_who_has_caught_up_while_its_removal_was_asked_for_is_proposed_at_once() -> None:
    """The metadata may say what this leader has asked for before the controller's answer does."""
    c = StepCluster()
    c.create()
    c.replicate()
    c[1].produce(["a"], acks=1)
    c.fetch(2)
    c.fetch(2)
    c.tick(10_001)
    request = c[1].alter_request()
    assert request is not None and c[1].partition().pending_isr.removed == (3,)
    c.fetch(3)
    c.fetch(3)
    c.controller.alter_partition(request)
    c.publish()
    assert c[1].partition().committed_isr == (1, 2) and c[1].partition().pending_isr.added == (3,)


def test_rp_23_success_commits() -> None:
    c = proposing()
    c[1].take_alter(answer(ErrorCode.NONE, leader_id=c[1].id, leader_epoch=3, isr=(c[1].id, c[2].id), partition_epoch=6))
    isr = c[1].partition().leader.isr
    assert isr.committed == (1, 2) and isr.pending is None and c[1].partition().partition_epoch == 6


def test_rp_23_an_equal_partition_epoch_commits() -> None:
    """The controller had nothing to change."""
    c = proposing()
    pending = c[1].partition().pending_isr
    c.controller.set_fenced(c[2].id, True)
    c.publish()
    c[1].take_alter(answer(ErrorCode.NONE, leader_id=c[1].id, leader_epoch=3, isr=(c[1].id,), partition_epoch=5))
    isr = c[1].partition().leader.isr
    assert pending is not None and isr.pending is None
    assert isr.committed == isr.maximal == (1,) and c[1].partition().partition_epoch == 5


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(3, 4), (4, 6), (2, 6)])
def test_rp_23_answers_about_another_time_are_ignored(leader_epoch: int, partition_epoch: int) -> None:
    c = proposing()
    pending = c[1].partition().pending_isr
    c[1].take_alter(answer(ErrorCode.NONE, leader_epoch=leader_epoch, isr=(c[1].id, c[2].id), partition_epoch=partition_epoch))
    assert c[1].partition().pending_isr is pending


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_rp_23_an_expansion_that_was_not_made_is_withdrawn_and_counts_until_that_is_answered(error: ErrorCode) -> None:
    c = proposing()
    partition = c[1].partition()
    c[1].take_alter(answer(error))
    isr = partition.leader.isr
    assert isr.pending is not None and isr.maximal == (1, 2), "an earlier copy of the proposal may still be carried out"
    request = c[1].alter_request()
    assert request is not None
    (item,) = request.partitions
    assert [member.broker_id for member in item.new_isr] == [1] and item.partition_epoch == partition.partition_epoch
    c[1].take_alter(answer(ErrorCode.NONE, leader_id=c[1].id, leader_epoch=3, isr=(c[1].id,), partition_epoch=6))
    assert (isr.pending, isr.maximal, partition.partition_epoch) == (None, (1,), 6)
    c[1].produce(["a"], acks=1)
    c.fetch(2)
    c.fetch(2)
    assert c[1].alter_request() is not None, "a later fetch asks again"


def test_rp_23_a_late_copy_of_a_withdrawn_expansion_is_void() -> None:
    """Else the controller would elect a replica that the leader's HW did not wait for, and acknowledged records would be lost."""
    c = proposing()
    pending = c[1].partition().pending_isr
    assert pending is not None and c[1].broker_epoch is not None
    late = AlterPartitionRequest(broker_id=c[1].id, broker_epoch=c[1].broker_epoch, partitions=(pending.item,))
    c.controller.set_fenced(c[2].id, True)
    c[1].take_alter(c.controller.alter_partition(late))
    c.controller.set_fenced(c[2].id, False)
    withdrawal = c[1].alter_request()
    assert withdrawal is not None
    c[1].take_alter(c.controller.alter_partition(withdrawal))
    assert c[1].partition().leader.isr.maximal == (1,)
    (answered,) = c.controller.alter_partition(late).partitions
    assert answered.error is ErrorCode.INVALID_UPDATE_VERSION
    assert c.controller.registration(late.partitions[0].topic_id, 0).isr == (1,)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_rp_23_what_metadata_will_settle_stays_pending(error: ErrorCode) -> None:
    c = proposing()
    pending = c[1].partition().pending_isr
    c[1].take_alter(answer(error))
    assert c[1].partition().pending_isr is pending and c[1].alter_request() is None


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT, None])
def test_rp_23_anything_else_is_tried_again(error: ErrorCode | None) -> None:
    """None: the answer does not mention the partition."""
    c = proposing()
    c[1].take_alter(AlterPartitionResponse(partitions=()) if error is None else answer(error))
    assert c[1].alter_request() is not None


def test_rp_24_newer_metadata_overrides_what_is_pending_and_older_is_ignored() -> None:
    c = proposing()
    partition = c[1].partition()
    before = c.controller.registration()
    c.controller._change(TOPIC_ID, 0, isr=(c[1].id,))
    c[1].catch_up()
    assert partition.partition_epoch == 6 and partition.leader.leader_epoch == 3
    c[1].take_alter(answer(ErrorCode.NONE, leader_epoch=3, isr=(c[1].id, c[2].id), partition_epoch=7))
    assert partition.leader.isr.committed == (1,), "the answer belongs to a proposal that is settled"
    assert not partition.become_leader(before, 0) and partition.partition_epoch == 6
    assert partition.pending_isr is not None and partition.pending_isr.item.partition_epoch == 6


def test_rp_24_metadata_that_says_what_is_known_leaves_a_newer_proposal_alone() -> None:
    c = proposing()
    partition = c[1].partition()
    pending = partition.pending_isr
    partition.become_leader(c.controller.registration(), 0)
    assert partition.pending_isr is pending


def test_rp_25_isr_members_get_a_fresh_clock_and_others_none() -> None:
    c = StepCluster()
    c.create(isr=(1, 2))
    c.clock.advance(77_000)
    c.controller.elect(c[2].id)
    c.publish()
    followers = c[2].partition().leader.followers
    assert followers[c[1].id].last_caught_up_ms == 77_000 and followers[c[3].id].last_caught_up_ms is None


def test_rp_26_recovered_goes_out_with_the_first_expansion() -> None:
    c = StepCluster(2)
    c.create((1, 2), isr=(1,))
    c.controller.set_fenced(c[1].id, True)
    c.controller.elect_unclean(leader=c[2].id)
    c.publish()
    assert c[2].partition().leader.isr.recovering
    c.controller.set_fenced(c[1].id, False)
    c.publish()
    c.replicate()
    request = c[2].alter_request()
    assert request is not None and not request.partitions[0].recovering and len(request.partitions[0].new_isr) == 2
    c[2].take_alter(c.controller.alter_partition(request))
    assert not c[2].partition().leader.isr.recovering


def answered_smaller_isr() -> StepCluster:
    """The controller has answered the leader that it alone is in the ISR, which its metadata does not say yet."""
    c = StepCluster(2)
    c.create((1, 2))
    c.replicate()
    c[1].produce(["a"], acks=1)
    c.tick(10_001)
    request = c[1].alter_request()
    assert request is not None
    c[1].take_alter(c.controller.alter_partition(request))
    return c


def test_el_13_a_smaller_isr_counts_when_the_metadata_says_so() -> None:
    """What the controller answers may come after a larger min.insync.replicas that the leader has not heard of."""
    c = answered_smaller_isr()
    partition = c[1].partition()
    assert partition.committed_isr == (1,) and c[1].log().hw == 0
    c.tick(1)
    assert c[1].log().hw == 0
    c.publish()
    assert partition.committed_isr == (1,) and c[1].log().hw == 1


def test_el_13_metadata_that_is_newer_than_a_smaller_isr_says_it_too() -> None:
    """The leader hears of the ISR that it was answered and of a later change at once."""
    c = answered_smaller_isr()
    assert c[1].log().hw == 0
    c.controller._change(TOPIC_ID, 0, isr=(c[1].id,))  # as for a proposal that is taken back
    c.publish()
    assert c[1].partition().committed_isr == (1,) and c[1].log().hw == 1


def test_el_13_a_larger_minimum_counts_before_the_changes_that_came_with_it() -> None:
    c = StepCluster(2)
    c.create((1, 2))
    c.replicate()
    c[1].produce(["a"], acks=1)
    partition = c[1].partition()
    strict, loose = LogConfig(min_insync_replicas=2), LogConfig(min_insync_replicas=1)
    list(c[1].manager.announce_log_config_steps(TOPIC, strict))
    assert partition.min_isr == 2
    c.controller.set_fenced(NodeId(2), True)
    c[1].catch_up()
    assert partition.committed_isr == (1,) and c[1].log().hw == 0
    list(c[1].manager.announce_log_config_steps(TOPIC, loose))
    c.tick(1)
    assert (partition.min_isr, c[1].log().hw) == (2, 0), "the smaller one only when everything is applied"
    list(c[1].manager.update_log_config_steps(TOPIC, loose))
    assert (partition.min_isr, c[1].log().hw) == (1, 1)


def test_el_13_a_later_answer_does_not_hide_that_the_metadata_has_come() -> None:
    """The ISR shrinks and grows again before the leader hears of either: it hears of both at once."""
    c = answered_smaller_isr()
    c.fetch(2)
    c.fetch(2)
    request = c[1].alter_request()
    assert request is not None
    c[1].take_alter(c.controller.alter_partition(request))
    assert c[1].partition().committed_isr == (1, 2)
    assert c[1].log().hw == 0
    c.publish()
    assert c[1].log().hw == 1
