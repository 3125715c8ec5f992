"""DQ-30 to DQ-38: voters that are added, removed and updated, and controllers that join by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import ZERO_UUID, VoterEndpoint
from kraftlite.model.messages.raft import AddVoterRequest, ProbeVersionsResponse, RemoveVoterRequest, UpdateVoterRequest
from kraftlite.raft.states import Leader
from kraftlite.runtime.trace import raft as trace
from tests.harness.raft_changes import Call, add, remove, update
from tests.harness.raft_cluster import RaftCluster, SimNode
from tests.harness.raft_requests import ask
from tests.harness.raft_voters import ConfiguredCluster, VoterCluster, controls, directory_of, endpoints_of, entry, voter_set

TIMEOUT_MS = 2_000
OK, LATE = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT


def quorum(**options: Any) -> tuple[VoterCluster, SimNode]:
    """Three voters, of which 1 leads, and the spare controller 4, which has caught up."""
    cluster = VoterCluster(spares=(4,), **options)
    leader = cluster.elect(1)
    leader.append("a")
    assert cluster.run(5_000, until=lambda: cluster[4].recorder.records == ["a"])
    cluster.run(600)
    return cluster, leader


# --- adding


def test_dq_30_dq_32_an_added_voter_counts_everywhere_and_the_caller_hears_of_the_commit() -> None:
    cluster, leader = quorum()
    assert Call(cluster, leader, add(4)).wait().error is OK
    assert leader.core.high_watermark == leader.core.leo
    assert cluster.run(1_000, until=lambda: all(it.core.voters == voter_set(1, 2, 3, 4) for it in cluster.nodes.values()))
    assert cluster[4].core.state_name == "follower"
    cluster[2].crash()
    leader.append("b")
    assert cluster.run(2_000, until=lambda: cluster[4].recorder.records == ["a", "b"]), "three of four"
    cluster[3].crash()
    leader.append("c")
    assert not cluster.run(1_000, until=lambda: "c" in leader.recorder.records), "two of four are no majority"


CASES: dict[str, tuple[Callable[[VoterCluster], AddVoterRequest | RemoveVoterRequest], ErrorCode]] = {
    "add: another cluster": (lambda c: add(4, cluster_id="x"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    "add: no directory": (lambda c: add(4, directory=ZERO_UUID), ErrorCode.INVALID_REQUEST),
    "add: a negative id": (lambda c: add(-1), ErrorCode.INVALID_REQUEST),
    "add: no listener": (lambda c: add(4, listeners=()), ErrorCode.INVALID_REQUEST),
    "add: another listener": (
        lambda c: add(4, listeners=(VoterEndpoint(name="OTHER", host="node4", port=9004),)),
        ErrorCode.INVALID_REQUEST,
    ),
    "add: no port": (
        lambda c: add(4, listeners=(VoterEndpoint(name="CONTROLLER", host="node4", port=0),)),
        ErrorCode.INVALID_REQUEST,
    ),
    "add: a voter": (lambda c: add(3), ErrorCode.DUPLICATE_VOTER),
    "add: the id of a voter": (lambda c: add(3, directory=directory_of(3, disk=2)), ErrorCode.DUPLICATE_VOTER),
    "add: another directory than it has": (lambda c: add(4, directory=directory_of(4, disk=2)), LATE),
    "add: another node at the address": (lambda c: add(4, listeners=endpoints_of(2)), LATE),
    "remove: another cluster": (lambda c: remove(3, cluster_id="x"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    "remove: no directory": (lambda c: remove(3, directory=ZERO_UUID), ErrorCode.INVALID_REQUEST),
    "remove: no voter": (lambda c: remove(4), ErrorCode.VOTER_NOT_FOUND),
    "remove: another directory": (lambda c: remove(3, directory=directory_of(3, disk=2)), ErrorCode.VOTER_NOT_FOUND),
}


@pytest.mark.parametrize("case", CASES)
def test_dq_30_dq_33_what_is_refused_changes_nothing(case: str) -> None:
    cluster, leader = quorum()
    make, expected = CASES[case]
    answered = Call(cluster, leader, make(cluster)).wait()
    assert answered.error is expected and answered.message
    assert leader.core.voters == voter_set(1, 2, 3)
    assert not [offset for offset, _ in controls(leader) if offset > 2], "nothing was written"
    assert Call(cluster, leader, add(4)).wait().error is OK, "and the next change may begin"


def test_dq_30_only_the_leader_changes_the_voters() -> None:
    cluster, leader = quorum()
    answered = Call(cluster, cluster[2], add(4)).wait()
    assert answered.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answered.leader_id, answered.leader_epoch) == (1, leader.core.epoch)
    assert Call(cluster, cluster[2], remove(3)).wait().error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_dq_30_a_quorum_with_static_voters_refuses() -> None:
    cluster = RaftCluster()
    leader = cluster.elect(1)
    cluster.settle()
    cluster.nodes[99] = leader  # who asks hears nothing here
    assert ask(leader, add(4)).error is ErrorCode.UNSUPPORTED_VERSION
    assert ask(leader, remove(3)).error is ErrorCode.UNSUPPORTED_VERSION


def test_dq_30_no_change_before_something_of_the_leaders_epoch_is_committed() -> None:
    cluster, _ = quorum()
    cluster[1].crash()
    cluster[3].advance(2_100)
    leader = cluster.elect_without_replication(2)
    assert leader.core.high_watermark is None
    assert Call(cluster, leader, remove(1)).wait(100).error is LATE
    assert leader.core.voters == voter_set(1, 2, 3)


def test_dq_30_a_candidate_that_cannot_be_reached_is_refused_at_once() -> None:
    cluster, leader = quorum()
    cluster[4].kill()
    before = leader.now_ms
    answered = Call(cluster, leader, add(4)).wait()
    assert answered.error is LATE and "cannot be reached" in answered.message and leader.now_ms - before < TIMEOUT_MS


def test_dq_31_a_candidate_must_have_caught_up() -> None:
    cluster = VoterCluster(spares=(4,), start=False)
    for node_id in (1, 2, 3):
        cluster[node_id].start()
    leader = cluster.elect(1)
    leader.append("a")
    cluster.run(1_000)
    cluster[4].start()
    answered = Call(cluster, leader, add(4)).wait()
    assert answered.error is LATE and "has not caught up" in answered.message
    assert cluster.run(5_000, until=lambda: cluster[4].recorder.records == ["a"])
    cluster.run(600)
    assert Call(cluster, leader, add(4)).wait().error is OK


def test_dq_31_a_candidate_must_support_the_kraft_version() -> None:
    cluster, leader = quorum()

    def old(message: Any) -> None:
        if isinstance(message.body, ProbeVersionsResponse):
            message.body = replace(message.body, max_kraft_version=0)

    cluster.on_post = old
    answered = Call(cluster, leader, add(4)).wait()
    assert answered.error is ErrorCode.INVALID_REQUEST and "supports 0 to 0" in answered.message
    assert leader.core.voters == voter_set(1, 2, 3)


def test_dq_31_an_answer_that_comes_after_the_callers_time_is_ignored() -> None:
    cluster, leader = quorum()
    call = Call(cluster, leader, add(4))
    (probe,) = [m for m in cluster.network if m.target == 4 and m.method.name == "ProbeVersions"]
    cluster.network.remove(probe)
    assert call.wait().error is LATE
    again = Call(cluster, leader, add(4))
    cluster.network.append(probe)  # answered under a correlation id that nobody waits for
    assert again.wait().error is OK and len(leader.core.voters) == 4
    assert len([m for m in cluster.sent if m.kind == "resp" and m.target == 99]) == 2


def test_dq_32_a_change_that_is_late_stays_and_commits_when_it_can() -> None:
    """A caller that asks again hears of a duplicate."""
    cluster, leader = quorum()
    call = Call(cluster, leader, add(4))
    cluster.deliver_link(1, 4)
    cluster.deliver_link(4, 1)
    assert leader.core.voters == voter_set(1, 2, 3, 4)
    cluster.isolate(1)
    assert call.wait(TIMEOUT_MS + 100).error is LATE
    assert Call(cluster, leader, remove(2)).wait(10).error is LATE, "the last set is not committed yet"
    cluster.heal()
    assert cluster.run(10_000, until=lambda: cluster.has_agreed())
    now = cluster.leader()
    if now.core.voters == voter_set(1, 2, 3, 4):
        assert Call(cluster, now, add(4)).wait().error is ErrorCode.DUPLICATE_VOTER
    else:
        assert now.id != 1 and Call(cluster, now, add(4)).wait().error in (OK, LATE)


def test_dq_32_without_waiting_for_the_commit_the_answer_comes_at_the_append() -> None:
    cluster, leader = quorum()
    call = Call(cluster, leader, add(4, wait=False))
    cluster.deliver_link(1, 4)
    cluster.deliver_link(4, 1)
    assert call.answer is not None and call.answer.error is OK
    assert leader.core.high_watermark is not None and leader.core.high_watermark < leader.core.leo
    assert Call(cluster, leader, remove(2)).answer.error is LATE, "DQ-35: it is not committed yet"


def test_dq_32_a_leader_that_loses_its_office_says_so_to_the_caller() -> None:
    cluster, leader = quorum()
    cluster.isolate(1)
    call = Call(cluster, leader, remove(3))
    leader.resign()
    assert call.answer is not None and call.answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.heal()
    assert cluster.run(20_000, until=cluster.has_agreed)


def test_dq_35_of_many_changes_one_at_a_time_wins() -> None:
    cluster, leader = quorum()
    calls = [Call(cluster, leader, request) for request in (add(4), remove(2), remove(3), add(4), remove(1))]
    answers = [call.wait().error for call in calls]
    assert answers == [OK, LATE, LATE, LATE, LATE] and leader.core.voters == voter_set(1, 2, 3, 4)
    assert not cluster.events_of(trace.VotersLeapt)


# --- removing


def test_dq_33_a_dead_voter_is_removed_without_a_word_of_it() -> None:
    cluster, leader = quorum()
    cluster[3].kill()
    assert Call(cluster, leader, remove(3)).wait().error is OK
    cluster[2].kill()
    leader.append("b")
    assert not cluster.run(1_000, until=lambda: "b" in leader.recorder.records), "two of two are needed"
    cluster[2].start()
    assert cluster.run(5_000, until=lambda: "b" in leader.recorder.records)


def test_dq_13_a_voter_that_never_fetched_is_no_observer_when_it_is_removed() -> None:
    cluster, leader = quorum()
    cluster[3].kill()
    leader.resign()
    assert cluster.run(10_000, until=cluster.has_agreed)
    now = cluster.leader()
    assert Call(cluster, now, remove(3)).wait().error is OK
    assert 3 not in {it.replica_id for it in now.core.describe(0).observers}


def test_dq_33_the_last_voter_stays() -> None:
    cluster = VoterCluster(initial=(1,), spares=(4,))
    leader = cluster.leader()
    cluster.run(1_000)
    answered = Call(cluster, leader, remove(1)).wait()
    assert answered.error is ErrorCode.VOTER_NOT_FOUND and "the last voter" in answered.message


def test_dq_34_the_leader_may_remove_itself_and_goes_on_as_an_observer() -> None:
    cluster, leader = quorum()
    assert Call(cluster, leader, remove(1)).wait().error is OK
    assert cluster.run(5_000, until=lambda: leader.core.state_name == "observer")
    assert cluster.run(10_000, until=cluster.has_agreed)
    now = cluster.leader()
    assert now.id in (2, 3)
    now.append("b")
    assert cluster.run(5_000, until=lambda: leader.recorder.records == ["a", "b"])
    assert Call(cluster, now, add(1)).wait().error is OK and now.core.voters == voter_set(1, 2, 3)


def test_dq_12_a_leader_that_dies_with_its_own_removal_alone_is_elected_once_more_and_hands_over() -> None:
    """Of two voters the other one's log is shorter: it cannot win, and without a stand of the removed one nobody could."""
    cluster = VoterCluster(initial=(1, 2), spares=(4,))
    leader = cluster.elect(1)
    leader.append("a")
    cluster.run(2_000)
    cluster.isolate(1)
    call = Call(cluster, leader, remove(1))
    assert leader.core.voters == voter_set(2)
    leader.flush()
    leader.crash()
    cluster.heal()
    leader.start()
    assert cluster.run(30_000, until=lambda: cluster.has_agreed() and cluster.leader().id == 2), "the last voter leads at last"
    assert call.answer is None and cluster[2].core.voters == voter_set(2) and leader.core.state_name == "observer"
    cluster[2].append("b")
    assert cluster.run(5_000, until=lambda: leader.recorder.records == ["a", "b"])


def test_a_quorum_grows_from_one_to_three_and_shrinks_to_another_one() -> None:
    """DQ-11: a set of one never expires, also after the set was larger."""
    cluster = VoterCluster(initial=(1,), spares=(2, 3))
    leader = cluster.leader()
    cluster.run(2_000)
    for node_id in (2, 3):
        assert Call(cluster, leader, add(node_id)).wait().error is OK
    for node_id in (1, 2):
        cluster.run(3_000, until=cluster.has_agreed)
        assert Call(cluster, cluster.leader(), remove(node_id)).wait().error is OK
        cluster.run(5_000)
    last = cluster.leader()
    assert last.id == 3 and last.core.voters.ids == (3,)
    epoch = last.core.epoch
    cluster.isolate(3)
    cluster.run(20_000, step_ms=50)
    assert isinstance(last.core.state, Leader) and last.core.epoch == epoch
    assert last.core.high_watermark == last.core.leo
    cluster.heal()
    last.append("z")
    assert cluster.run(5_000, until=lambda: all(it.recorder.records[-1:] == ["z"] for it in cluster.nodes.values()))


def test_dq_10_a_leader_that_was_alone_resigns_when_the_voter_that_it_has_added_does_not_fetch() -> None:
    cluster = VoterCluster(initial=(1,), spares=(2,))
    leader = cluster.leader()
    cluster.run(2_000)
    Call(cluster, leader, add(2))
    assert cluster.run(3_000, until=lambda: any(isinstance(it.body, ProbeVersionsResponse) for it in cluster.sent))
    cluster[2].crash()
    assert cluster.run(3_000, until=lambda: leader.core.voters.ids == (1, 2)), "it has answered before"
    assert cluster.run(10_000, until=lambda: not isinstance(leader.core.state, Leader)), "it cannot commit any more"


# --- updating


UPDATES: dict[str, tuple[Callable[[int], UpdateVoterRequest], ErrorCode]] = {
    "an older epoch": (lambda epoch: update(epoch - 1, 2), ErrorCode.FENCED_LEADER_EPOCH),
    "a newer epoch": (lambda epoch: update(epoch + 1, 2), ErrorCode.UNKNOWN_LEADER_EPOCH),
    "no listener": (lambda epoch: update(epoch, 2, listeners=()), ErrorCode.INVALID_REQUEST),
    "no range": (lambda epoch: update(epoch, 2, versions=(1, 0)), ErrorCode.INVALID_REQUEST),
    "a negative version": (lambda epoch: update(epoch, 2, versions=(-1, 1)), ErrorCode.INVALID_REQUEST),
    "an old range": (lambda epoch: update(epoch, 2, versions=(0, 0)), ErrorCode.INVALID_REQUEST),
    "no voter": (lambda epoch: update(epoch, 4), ErrorCode.VOTER_NOT_FOUND),
    "another directory": (lambda epoch: update(epoch, 2, directory=directory_of(2, disk=2)), ErrorCode.VOTER_NOT_FOUND),
    "the leader itself": (lambda epoch: update(epoch, 1), ErrorCode.INVALID_REQUEST),
    "too many listeners": (lambda epoch: update(epoch, 2, listeners=listeners_of(2, 100, "host")), ErrorCode.INVALID_REQUEST),
    "too long names": (lambda epoch: update(epoch, 2, listeners=listeners_of(2, 1, "h" * 32_767)), ErrorCode.INVALID_REQUEST),
}


def listeners_of(node_id: int, more: int, host: str) -> tuple[VoterEndpoint, ...]:
    return (*endpoints_of(node_id), *(VoterEndpoint(name=f"L{i}", host=host, port=9_000) for i in range(more)))


@pytest.mark.parametrize("case", UPDATES)
def test_dq_36_updates_are_checked(case: str) -> None:
    cluster, leader = quorum()
    make, expected = UPDATES[case]
    before = leader.core.leo
    assert Call(cluster, leader, make(leader.core.epoch)).answer.error is expected
    assert leader.core.leo == before


@pytest.mark.parametrize("make", [ConfiguredCluster, VoterCluster], ids=["configured", "in the log"])
def test_dq_36_a_leader_is_no_contact_of_itself(make: type[VoterCluster]) -> None:
    """Else whoever sends it updates in its own name keeps it in office when no other voter reaches it."""
    cluster = make()
    leader = cluster.elect(1)
    cluster.run(1_000)
    cluster.isolate(1)
    epoch = leader.core.epoch
    for _ in range(12):
        leader.advance(500)
        ask(leader, update(epoch, 1))
    assert leader.core.state_name != "leader"
    assert [event.reason for event in cluster.events_of(trace.LeaderResigned)] == ["no fetches from a majority of the voters"]


def test_dq_30_a_voter_has_no_more_listeners_than_a_record_of_all_voters_can_hold() -> None:
    cluster, leader = quorum()
    refused = Call(cluster, leader, add(4, listeners=listeners_of(4, 99_999, "h"))).wait()
    assert refused.error is ErrorCode.INVALID_REQUEST and "100000 listeners" in refused.message
    assert Call(cluster, leader, add(4, listeners=listeners_of(4, 99, "h" * 200))).wait().error is OK


def test_dq_36_an_update_is_answered_at_the_append() -> None:
    cluster, leader = quorum()
    moved = (VoterEndpoint(name="CONTROLLER", host="elsewhere", port=9002),)
    answered = Call(cluster, leader, update(leader.core.epoch, 2, listeners=moved)).answer
    assert answered.error is OK and answered.leader_id == 1 and answered.leader_endpoint is not None
    changed = leader.core.voters.get(entry(2).id)
    assert changed is not None and changed.listeners == moved and changed.endpoint.host == "elsewhere"
    assert leader.core.high_watermark is not None and leader.core.high_watermark < leader.core.leo


def test_dq_37_a_voter_with_another_listener_than_its_entry_tells_the_leader() -> None:
    cluster, leader = quorum()
    cluster[2].crash()
    more = (*endpoints_of(2), VoterEndpoint(name="SECOND", host="node2", port=9102))
    cluster[2].config = replace(cluster[2].config, listeners=more)
    cluster[2].start()

    def told() -> bool:
        found = leader.core.voters.get(entry(2).id)
        return found is not None and found.listeners == more

    assert cluster.run(3 * TIMEOUT_MS, until=told)
    asked = len([m for m in cluster.sent if m.method.name == "UpdateVoter"])
    cluster.run(3 * TIMEOUT_MS)
    assert len([m for m in cluster.sent if m.method.name == "UpdateVoter"]) == asked, "and then it is silent"


# --- joining


def test_dq_38_a_controller_joins_by_itself() -> None:
    cluster, leader = quorum(auto_join=True)
    assert cluster.run(5 * TIMEOUT_MS, until=lambda: leader.core.voters == voter_set(1, 2, 3, 4))
    assert cluster.run(2_000, until=lambda: cluster[4].core.state_name == "follower")


def test_dq_38_a_voter_with_a_new_disk_replaces_its_old_entry() -> None:
    cluster = VoterCluster(auto_join=True)
    leader = cluster.elect(1)
    leader.append("a")
    cluster.run(1_000)
    cluster[3].crash()
    cluster.replace_disk(3)
    cluster[3].start()
    wanted = voter_set(1, 2).with_voter(entry(3, disk=2))
    assert cluster.run(10 * TIMEOUT_MS, until=lambda: leader.core.voters == wanted)
    assert cluster.run(2_000, until=lambda: cluster[3].recorder.records == ["a"] and cluster[3].core.state_name == "follower")


def test_dq_38_a_removed_voter_that_joins_by_itself_comes_back() -> None:
    cluster, leader = quorum(auto_join=True)
    assert cluster.run(5 * TIMEOUT_MS, until=lambda: len(leader.core.voters) == 4)
    cluster.run(1_000)
    assert Call(cluster, leader, remove(3)).wait().error is OK
    assert len(leader.core.voters) == 3
    assert cluster.run(5 * TIMEOUT_MS, until=lambda: len(leader.core.voters) == 4)


def test_dq_38_without_the_setting_nobody_joins() -> None:
    cluster, leader = quorum()
    cluster.run(5 * TIMEOUT_MS)
    assert leader.core.voters == voter_set(1, 2, 3)
    assert not [m for m in cluster.sent if m.method.name in ("AddVoter", "RemoveVoter", "UpdateVoter")]
