"""A metadata log becomes the events that `explain` tells; causes are concluded from the records of a batch, or left open."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from kraftlite.log.control import KRaftVersion, KRaftVoters, VoterNode
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.records import (
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
)
from kraftlite.model.ids import NodeId, VoterEndpoint
from kraftlite.obs.explain import Explanation, History, Subject, explain
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.explain_story import Story
from kraftlite.postmortem.events import log_events
from kraftlite.postmortem.reading import read_metadata_log
from tests.harness.metadata_log import MetadataLog
from tests.harness.metadata_support import broker, image_of, nodes, partition, topic

A, B = UUID(int=1), UUID(int=2)
N2 = NodeId(2)


def change(number: int = 0, topic_id: UUID = A, **fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=topic_id, partition=number, **fields)  # type: ignore[arg-type]


def level(name: str, number: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, level=number)


def voters(*ids: int) -> KRaftVoters:
    endpoints = (VoterEndpoint(name="CONTROLLER", host="a", port=9093),)
    return KRaftVoters(voters=tuple(VoterNode(voter_id=NodeId(it), directory_id=UUID(int=it), endpoints=endpoints) for it in ids))


def voting(ms: int, node: int, offset: int | None, *ids: int) -> Recorded:
    facts = {"offset": offset, "voters": ids, "kraft_version": 1, "leo": 9}
    return Recorded(ms=ms, node=node, event="raft.voters_changed", facts=facts)


def fencing(node: int, fenced: bool, epoch: int | None = None) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=NodeId(node), broker_epoch=node + 9 if epoch is None else epoch, fenced=fenced
    )


@pytest.fixture
def log(tmp_path: Path) -> MetadataLog:
    """Brokers 1 to 3, and `a` with two partitions on them, as one batch: offsets 1 to 9."""
    found = MetadataLog(tmp_path / "__cluster_metadata-0")
    found.leader(0, 7, 1)
    found.add(1000, *(broker(node, node + 9, fenced=False) for node in (1, 2, 3)), *topic("a", 1, 2))
    return found


def history(log: MetadataLog, image: MetadataImage = MetadataImage.EMPTY) -> History:
    return History(log_events(read_metadata_log(log.directory), image), log_only=True)


def told(log: MetadataLog, kind: str, name: str | None = None) -> Explanation:
    return explain(history(log), Subject.parse(kind, name))


def stories(log: MetadataLog, kind: str, name: str | None = None) -> list[Story]:
    return [story for story in told(log, kind, name).stories if story.at_ms > 1000]


def causes(log: MetadataLog, *records: MetadataRecord, ms: int = 2000) -> list[str | None]:
    """What is concluded of the records of one batch."""
    first = log.add(ms, *records)
    return [event.cause for _, event in sorted(history(log).records.items()) if event.get("offset") >= first]


FENCED = "operation:maybe_fence_stale_broker broker=2"
LEADERS_2 = [change(0, leader=N2), change(1, leader=N2)]


@pytest.mark.parametrize(
    ("before", "records", "expected"),
    [
        ([], [change(isr=nodes(1, 3)), fencing(2, True)], [FENCED, FENCED]),
        ([], [fencing(2, True), change(isr=nodes(1, 3))], [FENCED, FENCED]),
        # One batch may have the records of several operations.
        (
            [],
            [change(isr=nodes(1, 3)), change(1, isr=nodes(1, 2)), fencing(2, True)],
            [FENCED, "operation:alter_partition broker=1", FENCED],
        ),
        (
            [],
            [BrokerRegistrationChangeRecord(broker_id=N2, broker_epoch=11, in_controlled_shutdown=True), change(isr=nodes(1, 3))],
            ["operation:broker_heartbeat broker=2 new=controlled_shutdown"] * 2,
        ),
        (
            [BrokerRegistrationChangeRecord(broker_id=N2, broker_epoch=11, in_controlled_shutdown=True)],
            [fencing(2, True)],
            ["operation:broker_heartbeat broker=2 new=shutdown_now"],
        ),
        (
            [change(leader=None)],
            [fencing(2, False), change(leader=N2, isr=nodes(2))],
            ["operation:broker_heartbeat broker=2 new=unfenced"] * 2,
        ),
        ([], [broker(2, 20)], ["operation:register_broker broker=2 replaces=11"]),
        ([], [broker(4, 20)], ["operation:register_broker broker=4"]),
        ([], [change(isr=nodes(1))], ["operation:alter_partition broker=1"]),
        ([change(isr=nodes(1))], [change(isr=nodes(1, 2))], ["operation:alter_partition broker=1"]),
        (LEADERS_2, [change(leader=NodeId(1))], ["operation:elect_preferred_or_asked"]),
        ([change(isr=nodes(1))], [change(leader=N2, isr=nodes(2), recovering=True)], ["operation:elect_unclean"]),
        ([], [change(leader=NodeId(3))], [None]),
        ([], [change(replicas=nodes(2, 3), isr=nodes(2, 3), leader=N2)], ["operation:alter_partition_reassignments"]),
        (
            [change(replicas=nodes(1, 2, 3, 4), adding_replicas=nodes(4), removing_replicas=nodes(3))],
            [change(replicas=nodes(1, 2, 4), adding_replicas=(), removing_replicas=(), isr=nodes(1, 2, 4))],
            ["operation:alter_partition broker=1"],
        ),
        # A client cancels a reassignment, or asks for another one, whether anybody leads or not.
        *(
            (
                [change(replicas=nodes(1, 2, 3, 4), adding_replicas=nodes(4), removing_replicas=nodes(3), **before)],
                [change(**record, **after)],
                ["operation:alter_partition_reassignments"],
            )
            for record in (
                {"replicas": nodes(1, 2, 3), "adding_replicas": (), "removing_replicas": ()},
                {"replicas": nodes(1, 4, 2, 3), "removing_replicas": nodes(2, 3)},
            )
            for before, after in (({}, {}), ({"leader": None}, {}), ({"leader": None}, {"leader": N2, "recovering": True}))
        ),
        ([], topic("b", 2), ["operation:create_topics"] * 2),
        (
            [],
            [*topic("b", 2), ConfigRecord(resource_type=2, resource_name="b", name="k", value="v")],
            ["operation:create_topics"] * 3,
        ),
        ([], [partition(A, 2)], ["operation:create_partitions"]),
        ([], [RemoveTopicRecord(topic_id=A)], ["operation:delete_topics"]),
        ([], [ConfigRecord(resource_type=2, resource_name="a", name="k", value="v")], ["operation:incremental_alter_configs"]),
        (
            [],
            [BeginTransactionRecord(name="Bootstrap records"), FeatureLevelRecord(name="f", level=1), EndTransactionRecord()],
            ["operation:activate"],
        ),
        ([], [FeatureLevelRecord(name="f", level=1)], ["operation:update_features"]),
    ],
)
def test_to_42_causes_are_concluded(
    log: MetadataLog, before: list[MetadataRecord], records: list[MetadataRecord], expected: list[str | None]
) -> None:
    if before:
        log.add(1500, *before)
    assert causes(log, *records) == expected


def test_a_move_that_is_cancelled_while_nobody_leads_is_told(log: MetadataLog) -> None:
    log.add(2000, change(replicas=nodes(1, 2, 3, 4), adding_replicas=nodes(4)))
    log.add(2500, change(leader=None, isr=nodes(4)))
    log.add(3000, change(replicas=nodes(1, 2, 3), adding_replicas=(), leader=N2, isr=nodes(2), recovering=True))
    found = [story for story in stories(log, "partition", "a-0") if story.kind == "reassigned"]
    assert [story.title for story in found] == ["a-0: the reassignment of 1,2,3 to 1,2,3 was cancelled in 1.0 s"]


def test_a_fencing_tells_what_it_moved(log: MetadataLog) -> None:
    log.add(2000, change(isr=nodes(2, 3), leader=N2), change(1, isr=nodes(2, 3), leader=N2), fencing(1, True))
    (story,) = stories(log, "node", "1")
    assert story.kind == "fenced" and story.chain == "broker 1 missed heartbeats ▸ FENCE @9 ▸ 2 leaders moved"
    assert [step.what for step in story.steps] == [
        "no heartbeat of broker 1 for broker.session.timeout.ms or longer",
        "broker 1 is fenced",
        "a-0: leader 1→2, ISR 1,2,3→2,3",
        "a-1: leader 1→2, ISR 1,2,3→2,3",
        "2 partitions changed, 2 of them got a new leader",
    ]
    (moved,) = stories(log, "partition", "a-0")
    assert moved.kind == "leader_changed"
    assert moved.chain == "broker 1 missed heartbeats ▸ FENCE @9 ▸ PARTITION_CHANGE @7 leader 1→2 epoch 0→1 ISR 1,2,3→2,3"


def test_to_42_an_unclean_election_is_called_so(log: MetadataLog) -> None:
    log.add(2000, change(isr=nodes(1)))
    log.add(3000, change(leader=N2, isr=nodes(2), recovering=True), fencing(1, True))
    story = stories(log, "partition", "a-0")[-1]
    assert story.title == "a-0: leader 1 → 2, an unclean election"
    assert story.facts["unclean"] is True
    assert "2 was not in sync: what only 1 had is lost" in story.steps[-1].what
    (of_broker,) = [story for story in stories(log, "node", "1") if story.kind == "fenced"]
    assert "a-0: leader 1→2, ISR 1→2; an unclean election: 2 was not in sync" in of_broker.steps[-2].what
    assert [story.title for story in stories(log, "cluster")][-1] == "a-0: leader 1 → 2, an unclean election"


def test_a_time_without_a_leader_has_a_length(log: MetadataLog) -> None:
    log.add(2000, change(isr=nodes(1)), change(1, isr=nodes(1)))
    log.add(3000, change(leader=None), change(1, leader=None), fencing(1, True))
    log.add(7500, fencing(1, False, 10), change(leader=NodeId(1)), change(1, leader=NodeId(1)))
    gap = next(story for story in stories(log, "partition", "a-0") if story.kind == "not_writable")
    assert gap.title.startswith("a-0: no leader for 4.5 s from ") and (gap.from_ms, gap.until_ms) == (3000, 7500)
    (both,) = [story for story in stories(log, "cluster") if story.kind == "not_writable"]
    assert both.title.startswith("2 partitions: no leader for 4.5 s from ") and both.facts["partitions"] == ["a-0", "a-1"]
    log.add(8000, change(leader=None))
    last = [story for story in stories(log, "partition", "a-0") if story.kind == "not_writable"][-1]
    assert "no leader since" in last.title and "as far as the log goes" in last.title and last.until_ms is None


def test_to_42_reassignments_begin_and_end(log: MetadataLog) -> None:
    log.add(2000, change(replicas=nodes(1, 2, 3, 4), adding_replicas=nodes(4), removing_replicas=nodes(3)))
    assert [story.title for story in stories(log, "partition", "a-0")] == [
        "a-0: the reassignment of 1,2,3 to 1,2,4 is under way yet"
    ]
    log.add(3000, change(isr=nodes(1, 2, 3, 4)))
    log.add(3500, change(replicas=nodes(1, 2, 4), isr=nodes(1, 2, 4), adding_replicas=(), removing_replicas=()))
    found = [story for story in stories(log, "partition", "a-0") if story.kind == "reassigned"]
    assert [story.title for story in found] == ["a-0: the reassignment of 1,2,3 to 1,2,4 was done in 1.5 s"]
    assert found[0].chain == ("REASSIGN @7 adding 4, removing 3 ▸ done @9")
    assert "a client gave the partition other replicas" in [step.what for step in found[0].steps]
    log.add(4000, change(1, replicas=nodes(1, 2, 3, 4), adding_replicas=nodes(4)))
    log.add(4500, change(1, replicas=nodes(1, 2, 3), adding_replicas=()))
    log.add(5000, change(1, replicas=nodes(3, 2, 1)))
    found = [story for story in stories(log, "partition", "a-1") if story.kind == "reassigned"]
    assert [story.title for story in found] == [
        "a-1: the reassignment of 1,2,3 to 1,2,3 was cancelled in 500 ms",
        "a-1: the reassignment of 1,2,3 to 3,2,1 was done at once",
    ]


def test_elections_of_the_quorum(log: MetadataLog) -> None:
    log.leader(9000, 8, 3)
    (story,) = stories(log, "controller")
    assert story.title == "raft epoch 3: active controller 7 → 8"
    assert told(log, "controller").standing == "node 8 is the active controller, raft epoch 3"


def test_to_42_who_is_elected_again_and_who_votes_from_then_on(log: MetadataLog) -> None:
    log.control(1500, KRaftVersion(kraft_version=1), voters(1, 2, 3))
    log.leader(9000, 7, 3)
    log.control(9500, voters(1, 3))
    log.control(9600, voters(1, 3, 4))
    log.control(9700, voters(1, 3, 4))
    assert [story.title for story in stories(log, "controller")] == [
        "raft epoch 3: active controller 7 was elected again",
        "the metadata quorum's voters are 1,3: 2 removed",
        "the metadata quorum's voters are 1,3,4: 4 added",
        "the metadata quorum's voters are 1,3,4: an address or a directory of one is another",
    ]
    assert [story.title for story in stories(log, "cluster")][1:] == [it.title for it in stories(log, "controller")][1:]


def test_to_42_levels_of_features_that_are_changed(tmp_path: Path) -> None:
    """Those with which a cluster begins are no change: it has no broker yet."""
    log = MetadataLog(tmp_path / "__cluster_metadata-0")
    log.leader(0, 7, 1)
    log.add(100, level("metadata.version", 25), level("group.version", 1))
    log.add(1000, broker(1, 10, fenced=False))
    log.add(2000, level("metadata.version", 29), level("share.version", 1), level("group.version", 1))
    log.add(3000, level("share.version", 0))
    said = [
        "metadata.version 25 (4.0-IV3) → 29 (4.2-IV1)",
        "share.version 0 → 1",
        "share.version 1 → 0",
    ]
    assert [story.title for story in told(log, "controller").stories if story.kind == "level"] == said
    log.add(4000, level("metadata.version", 30))
    known = image_of([level("metadata.version", 29), level("share.version", 1), broker(1, 10, fenced=False)])
    late = MetadataLog(tmp_path / "late", base=50)
    late.add(4000, level("metadata.version", 30), level("streams.version", 1))
    found = explain(history(late, known), Subject.parse("controller")).stories
    assert [it.title for it in found] == ["metadata.version 29 (4.2-IV1) → 30 (4.3-IV0)", "streams.version 0 → 1"]


def test_to_42_of_traces_the_change_of_the_voters_is_told_once() -> None:
    """Every node says it; and what the configuration says is no change."""
    events = [
        voting(10, 1, None, 1, 2, 3),
        voting(20, 2, 0, 1, 2, 3),
        voting(500, 2, 40, 1, 2),
        voting(510, 1, 40, 1, 2),
    ]
    found = explain(events, Subject.parse("controller")).stories
    assert [(it.at_ms, it.title) for it in found] == [(500, "the metadata quorum's voters are 1,2: 3 removed")]


def test_many_changes_of_one_batch_are_told_together(tmp_path: Path) -> None:
    log = MetadataLog(tmp_path / "__cluster_metadata-0")
    log.leader(0, 7, 1)
    log.add(1000, *topic("many", 1, 1_000))
    log.add(2000, *(change(number, isr=nodes(1, 3)) for number in range(1_000)))
    (story,) = stories(log, "cluster")
    assert story.title == "1000 partitions have a smaller ISR at once" and len(story.steps) < 15
    log.add(3000, *(change(number, replicas=nodes(1, 3), isr=nodes(1, 3)) for number in range(1_000)))
    found = stories(log, "cluster")
    assert len(found) == 10 and found[-1].title == "992 more reassignments began"


def test_what_a_trace_would_add_is_said(log: MetadataLog) -> None:
    for kind, name in (
        ("partition", "a-0"),
        ("topic", "a"),
        ("node", "1"),
        ("controller", None),
        ("cluster", None),
        ("record", "6"),
    ):
        found = told(log, kind, name)
        assert found.missing and found.to_dict()["not_in_the_log"] == list(found.missing)
        assert "This is what the metadata log tells." in found.text() and found.missing[0] in found.text()
    traced = explain(History(log_events(read_metadata_log(log.directory))), Subject.parse("node", "1"))
    assert traced.missing == () and "metadata log tells" not in traced.text()


def test_the_state_before_the_log_is_known_from_a_snapshot(tmp_path: Path) -> None:
    log = MetadataLog(tmp_path / "__cluster_metadata-0", base=50)
    log.add(2000, change(isr=nodes(2, 3), leader=N2), fencing(1, True))
    image = image_of([*(broker(node, node + 9, fenced=False) for node in (1, 2, 3)), *topic("a", 1)])
    found = history(log, image)
    (moved,) = found.changes["a-0"]
    assert (moved.old_leader, moved.leader, moved.old_isr) == (1, 2, (1, 2, 3))
    unknown = History(log_events(read_metadata_log(log.directory)), log_only=True)
    assert unknown.changes == {} or "a-0" not in unknown.changes
    text = explain(found, Subject.parse("cluster")).text()
    assert "node -1" not in text and "broker 1 was fenced" in text


def test_a_removed_topic_is_told(log: MetadataLog) -> None:
    log.add(2000, RemoveTopicRecord(topic_id=A))
    assert told(log, "partition", "a-0").standing == "deleted"
    assert [story.kind for story in stories(log, "partition", "a-0")] == ["deleted"]


def test_of_one_topic_the_others_are_left_out(log: MetadataLog) -> None:
    log.add(1500, *topic("b", 2, 2))
    log.add(2000, change(isr=nodes(1, 3)), change(1, B, isr=nodes(1, 3)), fencing(2, True))
    found = History(log_events(read_metadata_log(log.directory), topic="b"), log_only=True)
    assert found.partitions() == ["b-0", "b-1"] and found.topics() == ["a", "b"]
    ours, whole = (explain(it, Subject.parse("partition", "b-1")) for it in (found, history(log)))
    assert ours.text() == whole.text() and "broker 2 is fenced" in ours.text()


def test_idle_records_tell_nothing(log: MetadataLog) -> None:
    before = len(history(log).events)
    log.add(2000, NoOpRecord(), NoOpRecord())
    assert len(history(log).events) == before
