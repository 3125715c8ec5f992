"""Votes, the metadata log and leader epochs, as the page tells them."""

from __future__ import annotations

from typing import Any

from kraftlite.obs.explain import History
from kraftlite.obs.explain_events import Recorded
from kraftlite.ui.quorum_tail import records, votes
from kraftlite.ui.timeline import MAX_EPOCHS, epochs_of
from tests.harness.recordings import split


def recorded(at: int, node: int, event: str, **facts: Any) -> Recorded:
    return Recorded(ms=at, node=node, event=event, facts=facts)


def elected(at: int, node: int, epoch: int, start: int) -> Recorded:
    return recorded(at, node, "raft.leader_elected", raft_epoch=epoch, epoch_start_offset=start, granting_voters=[node])


def appended(at: int, node: int, offset: int) -> Recorded:
    return recorded(at, node, "controller.record_appended", offset=offset, record="Topic", detail="name=orders")


def test_a_record_is_lost_with_the_controller_that_wrote_it() -> None:
    """Those that it writes before it knows of its successor are lost at once, and the offsets are used anew."""
    history = History(
        [
            elected(10, 1, 1, 0),
            appended(20, 1, 5),
            appended(30, 1, 6),
            elected(40, 2, 2, 6),
            appended(50, 2, 7),
            appended(60, 1, 7),
            appended(70, 1, 8),
        ]
    )
    told = [(it["offset"], it["by"], it["epoch"], it["lost"]) for it in records(history)]
    assert told == [(5, 1, 1, None), (6, 1, 1, 40), (7, 2, 2, None), (7, 1, 1, 60), (8, 1, 1, 70)]
    assert [it["offset"] for it in records(history, 7)] == [7, 7, 8] and len(records(history, most=2)) == 2
    assert sorted(history.records) == [5, 7] and history.records[7].node == 2, "the stories rest on what counts"


def test_a_record_of_an_office_that_began_before_the_traces_is_not_called_lost() -> None:
    found = records(History([appended(10, 1, 5), elected(20, 2, 9, 6)]))
    assert [(it["epoch"], it["lost"]) for it in found] == [(None, None)]


def test_a_candidate_votes_for_itself_and_each_answer_is_told() -> None:
    history = History(
        [
            recorded(10, 3, "raft.vote_answered", candidate_id=2, raft_epoch=1, pre_vote=True, granted=True),
            recorded(20, 2, "raft.state_changed", state="candidate", raft_epoch=2),
            recorded(25, 3, "raft.state_changed", state="unattached", raft_epoch=2),
            recorded(30, 3, "raft.vote_answered", candidate_id=2, raft_epoch=2, pre_vote=False, granted=False),
        ]
    )
    told = [(it["node"], it["candidate"], it["epoch"], it["pre_vote"], it["granted"]) for it in votes(history)]
    assert told == [(3, 2, 1, True, True), (2, 2, 2, False, True), (3, 2, 2, False, False)]
    assert len(votes(history, most=1)) == 1


def test_the_epochs_of_a_partition_are_told_with_their_offsets() -> None:
    facts = {"tp": ["orders", 0], "partition_epoch": 1, "isr": [4], "min_isr": 1, "hw": 0, "recovering": False}
    starts = [
        recorded(at, 4, "partition.leader_started", leader_epoch=at, epoch_start_offset=at * 10, **facts) for at in range(20)
    ]
    history = History([*starts, recorded(30, 5, "partition.leader_started", leader_epoch=19, epoch_start_offset=7, **facts)])
    found = epochs_of(history, "orders-0")
    assert len(found) == MAX_EPOCHS and found[-1] == {"ts": 19, "epoch": 19, "start": 190, "leader": 4}
    assert epochs_of(history, "orders-1") == []
    lacking = recorded(31, 6, "partition.leader_started", leader_epoch=20, **facts)
    assert epochs_of(History([*starts, lacking]), "orders-0") == epochs_of(History(starts), "orders-0"), "it says not where"


def test_the_tape_of_two_controllers_has_the_vote_that_made_the_second_one() -> None:
    _, tape = split()
    granted = {(it["node"], it["candidate"]) for it in tape["quorum"]["votes"] if it["epoch"] == 2 and it["granted"]}
    assert {(2, 2), (3, 2)} <= granted
    assert all(it["lost"] is None for it in tape["quorum"]["records"] if it["by"] == 2)
    assert tape["quorum"]["records"] and "orders-0" in tape["epochs"]
