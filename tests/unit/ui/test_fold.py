"""The state of the page: unknown is never 0, a silent node keeps its last words, and the top line says what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.faults.injector import STOPPED
from kraftlite.obs.faults import Author, Fault
from kraftlite.ui.claims import Memory
from kraftlite.ui.fold import MAX_ROWS, node_of, page_of, partitions_of, state_of
from kraftlite.ui.words import MAX_REPLICAS, NodeWords
from tests.harness.ui import NOW, broker, controller, replica

QUORUM = [controller(1, active=True), controller(2), controller(3)]


def followers(**said: Any) -> list[NodeWords]:
    return [broker(5, replica(**said)), broker(6, replica(**said))]


def fold(*nodes: NodeWords, faults: list[Fault] | None = None, memory: Memory | None = None) -> dict[str, Any]:
    memory = memory or Memory()
    parts = partitions_of(nodes, NOW, memory)
    return {**state_of(nodes, parts, faults or [], NOW, memory), "rows": parts["rows"]}


def top(state: dict[str, Any]) -> list[str]:
    return [f"{line['level']}: {line['text']}" for line in state["headlines"]]


def test_all_is_well() -> None:
    state = fold(*QUORUM, broker(4, replica(leads=True)), *followers())
    assert top(state) == ["ok: everybody agrees; all 6 nodes answer"]
    assert state["partitions"]["total"] == 1 and state["rows"][0]["standing"] == "whole"


def test_unknown_is_never_zero() -> None:
    """No broker has been heard: nothing is counted, and no offset is there."""
    state = fold(*QUORUM, broker(4, age_ms=None), broker(5, age_ms=None, process="stopped"))
    counts = {name: value for name, value in state["partitions"].items() if name not in ("of_brokers", "answering", "cut")}
    assert set(counts.values()) == {None}
    assert [(node["life"], node["status"], node["leads"], node["heard_ms"]) for node in state["nodes"][3:]] == [
        ("unknown", None, None, None),
        ("dead", None, None, None),
    ]
    assert "warn: broker 5 has no process" in top(state)


def test_of_a_quorum_that_nobody_has_heard_of_the_top_says_so() -> None:
    """A page that is started when all nodes are dead."""
    unheard = [controller(it, age_ms=None, process="stopped") for it in (1, 2, 3)]
    state = fold(*unheard, broker(4, age_ms=None, process="stopped"))
    assert top(state)[0] == "alarm: nobody has said anything of the quorum: no controller has a process"
    assert (state["quorum"]["verdict"]["kind"], state["quorum"]["verdict"]["leader"]) == ("unknown", None)
    assert state["headlines"][0]["about"] == {"kind": "controller", "name": ""}
    starting = fold(*unheard[1:], controller(1, age_ms=None), broker(4))
    assert "info: nobody has said anything of the quorum: no controller has been heard yet" in top(starting)
    assert not any("of the quorum" in line for line in top(fold(*QUORUM, broker(4))))


def test_a_replica_that_has_said_nothing_has_no_offsets() -> None:
    state = fold(broker(5, replica(leader=5, leads=True, epoch=1)), broker(4, age_ms=None))
    said = {it["node"]: (it["says"], it["leo"], it["hw"]) for it in state["rows"][0]["replicas"]}
    assert said[5] == ("leader", 100, 90) and said[4] == (None, None, None) and said[6] == (None, None, None)


def test_a_dead_leader_keeps_its_last_words_and_is_no_leader() -> None:
    dead = broker(4, replica(leads=True, leo=105), age_ms=3_100, process="stopped")
    kill = Fault(id="f", kind="kill", node=4, by=Author(who="anna", door="page"), asked_ms=NOW - 3_000, seen_ms=NOW - 2_990)
    state = fold(*QUORUM, dead, *followers(), faults=[kill])
    row = state["rows"][0]
    assert (row["verdict"]["kind"], row["verdict"]["leader"], row["leaderless"]) == ("silent", 4, True)
    assert next(it for it in row["replicas"] if it["node"] == 4)["leo"] == 105
    assert top(state) == [
        "alarm: orders-0 has no leader that answers",
        "warn: broker 4 has no process, killed by anna (page)",
    ]
    assert state["headlines"][1]["since_ms"] == NOW - 2_990


@pytest.mark.parametrize(
    ("age_ms", "process", "life"), [(900, "running", "alive"), (1_100, "running", "silent"), (0, "paused", "paused")]
)
def test_how_a_node_is(age_ms: int, process: str, life: str) -> None:
    assert fold(controller(1, age_ms=age_ms, process=process))["nodes"][0]["life"] == life


def test_a_new_leader_after_the_old_one_fell_silent() -> None:
    state = fold(
        *QUORUM,
        broker(4, replica(leads=True), age_ms=20_000),
        broker(5, replica(leads=True, leader=5, epoch=1, isr=(5, 6), partition_epoch=1)),
        broker(6, replica(leader=5, epoch=1, isr=(5, 6), partition_epoch=1)),
    )
    row = state["rows"][0]
    assert (row["verdict"]["kind"], row["verdict"]["leader"], row["isr"], row["told_by"]) == ("agree", 5, [5, 6], 5)
    assert (row["standing"], row["under_replicated"], row["under_min"], row["waits_for"]) == ("short", True, False, [])


def test_two_that_lead_are_both_there() -> None:
    """A zombie that was resumed: it still leads by its own word, in the older epoch."""
    state = fold(
        *QUORUM,
        broker(4, replica(leads=True)),
        broker(5, replica(leads=True, leader=5, epoch=1)),
        broker(6, replica(leader=5, epoch=1)),
    )
    row = state["rows"][0]
    assert (row["verdict"]["kind"], row["verdict"]["leader"], row["verdict"]["leaders"]) == ("split", 5, [4, 5])
    assert [it["says"] for it in row["replicas"]] == ["leader", "leader", "follower"]
    assert top(state)[0] == "alarm: orders-0 has two nodes that say they lead; the newer epoch counts"


def test_two_active_controllers() -> None:
    state = fold(controller(1, active=True), controller(2, active=True, leader=2, epoch=2), controller(3, leader=2, epoch=2))
    assert state["quorum"]["verdict"]["leaders"] == [1, 2]
    assert top(state) == ["alarm: 1 and 2 each say that they lead the quorum; epoch 2 of 2 is the newest, and only it can commit"]


def test_a_follower_that_is_silent_holds_up_acks_of_all() -> None:
    state = fold(*QUORUM, broker(4, replica(leads=True)), broker(5, replica()), broker(6, replica(), age_ms=4_000))
    assert state["rows"][0]["waits_for"] == [6]
    assert "warn: orders-0 waits for 6, in sync by the metadata and not answering: acks=all is held up" in top(state)


def test_all_are_dead() -> None:
    """Nothing is 0 that is unknown, and everything that was said is still there."""
    nodes = [
        controller(1, active=True, age_ms=60_000, process="stopped"),
        broker(4, replica(leads=True), age_ms=60_000, process="stopped"),
    ]
    state = fold(*nodes)
    counts = state["partitions"]
    assert (counts["answering"], counts["total"], counts["leaderless"]) == (0, 1, 1)
    assert (counts["under_replicated"], counts["under_min"], counts["waiting"]) == (None, None, None), "nobody says it now"
    assert [node["heard_ms"] for node in state["nodes"]] == [NOW - 60_000] * 2
    assert state["quorum"]["verdict"]["kind"] == "silent" and state["rows"][0]["replicas"][0]["leo"] == 100


def test_since_when_is_what_was_seen() -> None:
    memory = Memory()
    nodes = [broker(4, replica(leads=True)), *followers()]
    first = partitions_of(nodes, NOW, memory)["rows"][0]
    assert (first["since_ms"], first["since_exact"]) == (NOW, False)
    nodes[0].process = "stopped"
    changed = partitions_of(nodes, NOW + 500, memory)["rows"][0]
    assert (changed["standing"], changed["since_ms"], changed["since_exact"]) == ("leaderless", NOW + 500, True)
    assert partitions_of(nodes, NOW + 900, memory)["rows"][0]["since_ms"] == NOW + 500


def test_rows_are_bounded_and_trouble_comes_first() -> None:
    said = [replica(leads=True, topic=f"t{number:04}", isr=(4,), replicas=(4,), min_isr=1) for number in range(1_000)]
    said.append(replica(leads=True, topic="zz", isr=(4,)))
    found = partitions_of([broker(4, *said)], NOW, Memory())
    shown = page_of(found["rows"], "")
    assert found["total"] == 1_001 and shown["matching"] == 1_001 and len(shown["rows"]) == MAX_ROWS
    assert shown["rows"][0]["name"] == "zz-0"
    assert [row["name"] for row in page_of(found["rows"], "t0999")["rows"]] == ["t0999-0"]


def test_words_are_bounded() -> None:
    words = broker(4, *(replica(topic="t", partition=number) for number in range(MAX_REPLICAS + 5)))
    assert len(words.replicas) == MAX_REPLICAS and words.cut == 5


def test_a_node_that_ended_of_its_full_disk_says_who_filled_it() -> None:
    """Also when its fault has ended with it; not once it runs again."""
    fault = Fault(id="f", kind="disk-full", node=4, by=Author(who="anna", door="cli"), asked_ms=NOW - 900, seen_ms=NOW - 800)
    ended = replace(fault, ended_ms=NOW - 500, ended_how=STOPPED)
    for process, told in (("stopped", "disk-full"), ("running", None)):
        shown = node_of(broker(4, process=process), NOW, [ended])
        assert (shown["fault"] and shown["fault"]["kind"]) == told
    over = replace(fault, ended_ms=NOW - 500, ended_how="its time was over")
    assert node_of(broker(4, process="stopped"), NOW, [over])["fault"] is None
    dead = [broker(4, process="stopped", age_ms=5_000)]
    memory = Memory()
    lines = state_of(dead, partitions_of(dead, NOW, memory), [ended], NOW, memory)["headlines"]
    assert "broker 4 has no process, after disk-full by anna (cli)" in [line["text"] for line in lines]


def test_what_the_leader_knows_of_its_followers_stands_beside_their_own_words() -> None:
    """It is not merged with them: the leader's word may be older, or the follower may have lost what it had."""
    known = {"followers": (5, 6, 7), "follower_leos": (100, 90, -1), "maximal_isr": (4, 5, 6)}
    nodes = (broker(4, replica(leads=True, isr=(4, 5, 6), **known)), broker(5, replica(leo=104)), broker(6, replica(leo=90)))
    row = fold(*QUORUM, *nodes)["rows"][0]
    told = [(it["node"], it["leo"], it["seen"], it["holds"]) for it in row["replicas"]]
    assert told == [(4, 100, None, None), (5, 104, 100, False), (6, 90, 90, True)]
    whole = replica(leads=True, hw=100, followers=(5,), follower_leos=(-1,), maximal_isr=(4, 5))
    row = fold(*QUORUM, broker(4, whole), *followers())["rows"][0]
    assert [(it["seen"], it["holds"]) for it in row["replicas"]] == [(None, None), (-1, False), (None, None)]
    row = fold(*QUORUM, *followers())["rows"][0]
    assert {it["seen"] for it in row["replicas"]} == {None}, "a follower knows nothing of the others"
    short = replica(leads=True, followers=(5, 6), follower_leos=(), maximal_isr=(4, 5, 6))
    row = fold(*QUORUM, broker(4, short), *followers())["rows"][0]
    assert {it["seen"] for it in row["replicas"]} == {None}


def test_what_a_later_leader_did_not_have_is_told_as_lost() -> None:
    """By an unclean election: 80 to 89 were committed, and the log of the next leader ended at 80."""
    memory = Memory()
    old = broker(4, replica(leads=True, epoch=0, leo=95, hw=90, isr=(4,), epoch_start_offset=0))
    assert fold(*QUORUM, old, memory=memory)["rows"][0]["lost"] is None
    dead = broker(4, *old.replicas.values(), age_ms=9_000, process="stopped")
    new = broker(5, replica(leads=True, leader=5, epoch=1, leo=97, hw=97, isr=(5,), epoch_start_offset=80))
    state = fold(*QUORUM, dead, new, memory=memory)
    lost = {"first": 80, "last": 89, "count": 10, "leader": 5, "epoch": 1, "seen_ms": NOW}
    assert state["rows"][0]["lost"] == lost
    assert "alarm: orders-0 lost 10 committed records, offsets 80 to 89: broker 5 leads epoch 1 without them" in top(state)
    back = broker(4, replica(leader=5, epoch=1, leo=80, hw=80, isr=(5,)))
    later = broker(5, replica(leads=True, leader=5, epoch=2, leo=120, hw=110, isr=(5, 4), epoch_start_offset=100))
    assert fold(*QUORUM, back, later, memory=memory)["rows"][0]["lost"] == lost, "the next change of leader was clean"
    anew = broker(5, replica(leads=True, leader=5, leo=0, hw=0, epoch_start_offset=0, topic_id=UUID(int=2)))
    assert fold(*QUORUM, anew, memory=memory)["rows"][0]["lost"] is None, "it is another topic of the same name"


@pytest.mark.parametrize(("hw", "start", "count"), [(90, None, 0), (90, 90, 0), (90, 95, 0), (100, 95, 5)])
def test_only_what_the_old_leader_had_committed_is_lost(hw: int, start: int | None, count: int) -> None:
    """By its last word, which it said after it was thought to be dead. A leader of an earlier version says no start."""
    memory = Memory()
    fold(*QUORUM, broker(4, replica(leads=True, epoch_start_offset=0)), memory=memory)
    fold(*QUORUM, broker(4, replica(leads=True, hw=hw, epoch_start_offset=0)), memory=memory)
    new = broker(5, replica(leads=True, leader=5, epoch=1, epoch_start_offset=start))
    lost = fold(*QUORUM, broker(4, replica(leads=True, hw=hw, epoch_start_offset=0)), new, memory=memory)["rows"][0]["lost"]
    assert (lost["count"] if lost else 0) == count


def test_losses_of_many_partitions_are_one_line_for_a_while() -> None:
    memory = Memory()
    for epoch, node, start in ((0, 4, 0), (1, 5, 88)):
        said = (
            replica(leads=True, leader=node, epoch=epoch, partition=at, isr=(node,), epoch_start_offset=start) for at in range(5)
        )
        nodes = [*QUORUM, broker(node, *said)]
        parts = partitions_of(nodes, NOW, memory)
    lines = state_of(nodes, parts, [], NOW, memory)["headlines"]
    expected = (
        "orders-0, orders-1, orders-2, orders-3, 1 more lost 10 committed records: their leaders began to lead without them"
    )
    assert (lines[0]["level"], lines[0]["text"]) == ("alarm", expected)
    later = state_of(nodes, parts, [], NOW + 600_000, memory)["headlines"]
    assert not any("lost" in line["text"] for line in later)
    assert all(row["lost"] for row in parts["rows"])
    partitions_of(QUORUM, NOW, memory)
    assert partitions_of(nodes, NOW, memory)["rows"][0]["lost"] is None, "it had gone"
