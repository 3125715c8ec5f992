"""Each check of the clients' history finds what is wrong in a made-up history, and nothing in one that is right."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.sim.checkers.base import CheckerFactory, LivenessViolation, Losses, Violation, World
from kraftlite.sim.checkers.catalog import ALL
from kraftlite.sim.checkers.catalog_replication import REPLICATION_AND_HISTORY
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.h_acknowledged import AcknowledgedKept
from kraftlite.sim.checkers.h_admin import AdminEffects
from kraftlite.sim.checkers.h_consumed import ConsumptionConsistent
from kraftlite.sim.checkers.h_duplicates import NoDuplicates
from kraftlite.sim.checkers.h_metadata import MetadataReads
from kraftlite.sim.checkers.h_order import OrderKept
from kraftlite.sim.checkers.h_verdicts import OneVerdict
from kraftlite.sim.checkers.losses_keeper import LossesKeeper
from kraftlite.sim.checkers.model import TOPIC
from kraftlite.sim.checkers.replica_facts import replica_facts
from kraftlite.sim.cluster import SimCluster
from kraftlite.sim.history import Admin, Consumed, History, MetadataRead, Produce, Verdict
from kraftlite.sim.loop import VirtualLoop
from kraftlite.sim.shape import NAMED

TP = TopicPartition("orders", 0)
OLD_ID, ID = UUID(int=1), UUID(int=2)
HISTORY: tuple[CheckerFactory, ...] = (
    OneVerdict, ConsumptionConsistent, AcknowledgedKept, NoDuplicates, OrderKept, AdminEffects, MetadataReads,
)  # fmt: skip
CASES: list[tuple[CheckerFactory, Callable[[Past], Any], str]] = []


class Past:
    """A world in which nothing runs. `orders` has the records w/0 to w/3 at offsets 0 to 3, all acknowledged and read by all."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(1)
        cluster = SimCluster(self.loop, NAMED["1+1"], 1)
        self.history = History()
        self.world = World(cluster=cluster, history=self.history, losses=Losses(), rng=random.Random(1))
        self.watch = MetadataWatch(self.world)
        LossesKeeper(self.world)
        self.offset = 0
        for number in range(4):
            self.history.produces.append(self.record(number, offset=number))
        for number in range(4):
            self.read(number, f"w/{number}", at_us=10_000 + number)
        self.finally_has(*(f"w/{number}" for number in range(4)))

    def close(self) -> None:
        self.loop.close()

    # --- what the log says

    def commit(self, *records: Any, at_us: int) -> int:
        """The offset of the last of them."""
        facts = self.watch.facts
        for record in records:
            facts.history.replay(record, self.offset)
            replica_facts(self.world).committed_us[self.offset] = at_us
            self.offset += 1
        facts.committed_end = self.offset
        return self.offset - 1

    def topic(self, topic: str = "orders", topic_id: UUID = ID, *, at_us: int = 100, partitions: int = 1) -> int:
        made = [
            PartitionRecord(
                topic_id=topic_id,
                partition=index,
                replicas=(NodeId(2),),
                isr=(NodeId(2),),
                leader=NodeId(2),
                leader_epoch=0,
                partition_epoch=0,
            )
            for index in range(partitions)
        ]
        return self.commit(TopicRecord(name=topic, topic_id=topic_id), *made, at_us=at_us)

    # --- what clients did

    def record(self, number: int, **changes: Any) -> Produce:
        values: dict[str, Any] = {
            "client": "w",
            "tp": TP,
            "topic_id": None,
            "number": number,
            "acks": -1,
            "idempotent": True,
            "producer_id": 7,
            "producer_epoch": 0,
            "sequence": number,
            "invoked_us": 1_000 * number,
            "returned_us": 1_000 * number + 500,
            "verdict": Verdict.OK,
        }
        return Produce(**(values | changes))

    def read(self, offset: int, value: str, *, at_us: int = 20_000, hw: int | None = None, topic_id: UUID | None = None) -> None:
        self.history.consumed.append(
            Consumed(
                client="reader",
                tp=TP,
                topic_id=None if topic_id is None else str(topic_id),
                broker=NodeId(2),
                at_us=at_us,
                hw=offset + 1 if hw is None else hw,
                records=((offset, value),),
            )
        )

    def finally_has(self, *values: str) -> None:
        self.history.final_logs[TP] = tuple(enumerate(values))

    def admin(self, kind: str, verdict: Verdict = Verdict.OK, error: str | None = None, **facts: Any) -> Admin:
        call = Admin(
            client="admin", kind=kind, facts=facts, invoked_us=1_000, returned_us=2_000, verdict=verdict, error=error
        )  # fmt: skip
        self.history.admins.append(call)
        return call

    def looked(
        self,
        offset: int,
        *topics: str,
        at_us: int = 5_000,
        broker: int = 2,
        leaders: Mapping[TopicPartition, tuple[NodeId | None, int]] | None = None,
        topic_id: UUID = ID,
    ) -> None:
        self.history.metadata.append(
            MetadataRead(
                client="admin",
                broker=NodeId(broker),
                invoked_us=at_us,
                returned_us=at_us + 100,
                metadata_offset=offset,
                leaders={TopicPartition(it, 0): (NodeId(2), 0) for it in topics} if leaders is None else leaders,
                topic_ids={it: str(topic_id) for it in topics},
                configs={it: {} for it in topics},
            )
        )


def breaks(checker: CheckerFactory, words: str) -> Callable[[Callable[[Past], Any]], Callable[[Past], Any]]:
    def note(function: Callable[[Past], Any]) -> Callable[[Past], Any]:
        CASES.append((checker, function, words))
        return function

    return note


# --- records


@breaks(AcknowledgedKept, "w/3 was acknowledged at offset 3 at 3 ms; at the end there is None")
def a_record_that_is_lost(past: Past) -> None:
    past.finally_has("w/0", "w/1", "w/2")


@breaks(AcknowledgedKept, "at the end there is 'w/3', and w/2 is at")
def a_record_that_is_replaced(past: Past) -> None:
    past.finally_has("w/0", "w/1", "w/3")


@breaks(AcknowledgedKept, "w/4 was acknowledged at offset -1")
def a_duplicate_that_never_was(past: Past) -> None:
    past.history.produces.append(past.record(4, offset=-1))


@breaks(NoDuplicates, "w/1 is there 2 times, at")
def a_record_twice(past: Past) -> None:
    past.finally_has("w/0", "w/1", "w/2", "w/3", "w/1")


@breaks(NoDuplicates, "w/1 was consumed at offset 1 and at offset 9")
def a_record_that_is_read_twice(past: Past) -> None:
    past.read(9, "w/1")


@breaks(OrderKept, r"w/2 \(sequence 2\) at offset 1 comes before w/1 \(sequence 1\)")
def records_in_another_order(past: Past) -> None:
    past.finally_has("w/0", "w/2", "w/1", "w/3")


@breaks(OrderKept, "x/0 was sent at 9000 us and got offset 2; w/3 had been acknowledged at offset 3")
def a_record_before_an_earlier_one(past: Past) -> None:
    past.history.produces[2].offset = 5
    past.history.produces.append(
        past.record(0, client="x", producer_id=8, sequence=0, invoked_us=9_000, returned_us=9_500, offset=2)
    )
    past.history.produces[2].returned_us = None


@breaks(ConsumptionConsistent, "offset 1 was read as w/2 by reader")
def another_value_at_an_offset(past: Past) -> None:
    past.read(1, "w/2")


@breaks(ConsumptionConsistent, "offset 5 was read as w/3 by .* as w/2 by")
def two_values_at_an_offset(past: Past) -> None:
    past.read(5, "w/2", hw=4 + 2)
    past.read(5, "w/3", hw=4 + 2)


@breaks(ConsumptionConsistent, "was given w/1 at offset 1, the HW was 1")
def a_read_above_the_hw(past: Past) -> None:
    past.read(1, "w/1", hw=1)


@breaks(ConsumptionConsistent, "which nobody had produced")
def a_read_of_what_nobody_wrote(past: Past) -> None:
    past.read(3, "ghost/1")


@breaks(ConsumptionConsistent, "which nobody had produced")
def a_read_of_what_is_not_written_yet(past: Past) -> None:
    past.read(3, "w/3", at_us=10)


@breaks(ConsumptionConsistent, "at the end there is ghost/1 at offset 4, which nobody has produced")
def a_final_record_that_nobody_wrote(past: Past) -> None:
    past.finally_has("w/0", "w/1", "w/2", "w/3", "ghost/1")


@breaks(ConsumptionConsistent, "at the end there is w/4 at offset 4, which was refused with NOT_ENOUGH_REPLICAS")
def a_refused_record_that_is_there(past: Past) -> None:
    past.history.produces.append(past.record(4, verdict=Verdict.FAILED, error="NOT_ENOUGH_REPLICAS"))
    past.finally_has("w/0", "w/1", "w/2", "w/3", "w/4")


@breaks(ConsumptionConsistent, "told the HW 9, at the end the log ends at 4")
def a_hw_beyond_the_end(past: Past) -> None:
    past.read(3, "w/3", hw=9)


@breaks(ConsumptionConsistent, r"at the end \(5, 'w/3'\) comes behind \(2, 'w/2'\)")
def a_final_log_with_a_gap(past: Past) -> None:
    past.history.final_logs[TP] = ((0, "w/0"), (1, "w/1"), (2, "w/2"), (5, "w/3"))


@breaks(ConsumptionConsistent, r"was given \(3, 'w/3'\) behind \(1, 'w/1'\)")
def a_read_with_a_gap(past: Past) -> None:
    past.history.consumed.append(replace(past.history.consumed[0], hw=9, records=((1, "w/1"), (3, "w/3"))))


# --- verdicts


@breaks(OneVerdict, "has no verdict")
def a_record_without_a_verdict(past: Past) -> None:
    past.history.produces[0].verdict = Verdict.OPEN


@breaks(OneVerdict, "create_topics {'topic': 't'} of admin, begun at 1000 us, has no verdict")
def a_call_without_a_verdict(past: Past) -> None:
    past.admin("create_topics", Verdict.OPEN, topic="t")


@breaks(OneVerdict, "began at 0 us and ended at -5")
def a_verdict_before_the_call(past: Past) -> None:
    past.history.produces[0].returned_us = -5


@breaks(OneVerdict, "succeeded with TIMED_OUT")
def a_verdict_that_is_two(past: Past) -> None:
    past.history.produces[0].error = "TIMED_OUT"


@breaks(OneVerdict, "w/3 was refused with INVALID_PRODUCER_EPOCH, and reader read it at offset 3")
def a_refused_record_that_is_read(past: Past) -> None:
    past.history.produces[3].verdict, past.history.produces[3].error = Verdict.FAILED, "INVALID_PRODUCER_EPOCH"


@breaks(OneVerdict, "w/2 and w/3 were both acknowledged at offset 2")
def two_records_with_one_offset(past: Past) -> None:
    past.history.produces[3].offset = 2


# --- metadata


@breaks(MetadataReads, "both have the metadata log up to 3: topic ids of a")
def two_answers_for_one_offset(past: Past) -> None:
    past.looked(3, "a", broker=2)
    past.looked(3, broker=3)


@breaks(MetadataReads, "answered with metadata offset 5 at .* and with 4")
def an_answer_that_goes_back(past: Past) -> None:
    past.looked(5, at_us=1_000)
    past.looked(4, at_us=2_000)


@breaks(MetadataReads, "told leader epoch 4 of orders-0 and later 3")
def a_leader_epoch_that_goes_back(past: Past) -> None:
    past.looked(4, "orders", at_us=1_000, leaders={TP: (NodeId(2), 4)})
    past.looked(5, "orders", at_us=2_000, leaders={TP: (NodeId(2), 3)})


@breaks(MetadataReads, "committed is up to 2")
def an_answer_from_the_future(past: Past) -> None:
    past.topic()
    past.looked(7, "orders")


@breaks(MetadataReads, "the log says otherwise: topic ids of orders")
def an_answer_without_a_topic(past: Past) -> None:
    past.looked(past.topic())


@breaks(MetadataReads, "the log says otherwise: configs of orders: {'retention.ms': '5'} and {}")
def an_answer_without_a_config(past: Past) -> None:
    past.topic()
    change = ConfigRecord(resource_type=TOPIC, resource_name="orders", name="retention.ms", value="5")
    past.looked(past.commit(change, at_us=500), "orders")


@breaks(AdminEffects, "create_topics .* was acknowledged at 2000 us, but was committed at no time")
def a_topic_that_was_never_created(past: Past) -> None:
    past.topic()
    past.admin("create_topics", topic="t", partitions=1)


@breaks(AdminEffects, r"was acknowledged at 2000 us, but was committed at \[2500\]")
def an_acknowledgement_before_the_commit(past: Past) -> None:
    past.topic("t", at_us=2_500)
    past.admin("create_topics", topic="t", partitions=1)


@breaks(AdminEffects, r"was refused with INVALID_CONFIG, but was committed at \[1500\]")
def a_refused_topic_that_is_there(past: Past) -> None:
    past.topic("t", at_us=1_500)
    past.admin("create_topics", Verdict.FAILED, "INVALID_CONFIG", topic="t", partitions=1)


@breaks(AdminEffects, "delete_topics .* committed at no time")
def a_topic_that_was_never_deleted(past: Past) -> None:
    past.topic()
    past.admin("delete_topics", topic="orders")


@breaks(AdminEffects, "create_partitions .* committed at no time")
def a_topic_that_did_not_grow(past: Past) -> None:
    past.topic()
    past.admin("create_partitions", topic="orders", partitions=2)


@breaks(AdminEffects, "alter_configs .* committed at no time")
def a_config_that_was_never_set(past: Past) -> None:
    past.topic()
    past.admin("alter_configs", topic="orders", config={"retention.ms": "7"})


@breaks(AdminEffects, "the topic was there at metadata offset 4, but is gone for admin at node 2 at offset 6")
def a_topic_that_vanishes(past: Past) -> None:
    past.admin("create_topics", topic="t", partitions=1)
    past.looked(4, "t")
    past.looked(6)


@breaks(AdminEffects, "the topic was gone at metadata offset 6, but is there for admin at node 2 at offset 8")
def a_topic_that_comes_back(past: Past) -> None:
    past.admin("delete_topics", topic="t")
    past.looked(4, "t")
    past.looked(6)
    past.looked(8, "t")


@pytest.fixture
def past() -> Any:
    made = Past()
    yield made
    made.close()


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=[f"{case[0].__name__}-{case[1].__name__}" for case in CASES])
def test_a_violation_is_found(past: Past, checker: CheckerFactory, violate: Callable[[Past], Any], words: str) -> None:
    checks = checker(past.world)
    checks.at_end()
    violate(past)
    with pytest.raises(Violation, match=words) as caught:
        checks.at_end()
    assert caught.value.checker.startswith(checker.__name__)  # type: ignore[attr-defined]


def test_every_check_can_fail_and_is_registered() -> None:
    assert {case[0] for case in CASES} == set(HISTORY)
    assert set(HISTORY) <= set(REPLICATION_AND_HISTORY)
    assert REPLICATION_AND_HISTORY[:2] == (MetadataWatch, LossesKeeper)
    assert ALL[:2] == (MetadataWatch, LossesKeeper)
    assert len(set(ALL)) == len(ALL)


def check(past: Past) -> None:
    for checker in HISTORY:
        checker(past.world).at_end()


def test_what_no_leader_confirmed_may_be_lost_and_is_counted(past: Past) -> None:
    past.history.produces[3].acks = 1
    del past.history.consumed[3]
    past.finally_has("w/0", "w/1", "w/2")
    check(past)
    assert past.world.notes["acks1_lost"] == 1


def test_what_is_excused_may_be_lost(past: Past) -> None:
    past.world.losses.excused[TP] = "a power cut"
    past.finally_has("w/0")
    check(past)


def test_a_refused_record_that_has_no_effect_is_fine(past: Past) -> None:
    past.history.produces.append(past.record(4, verdict=Verdict.FAILED, error="NOT_ENOUGH_REPLICAS"))
    past.history.produces.append(past.record(5, verdict=Verdict.UNKNOWN))
    check(past)


def test_a_topic_that_was_deleted_and_created_again_is_another_one(past: Past) -> None:
    """What was acknowledged and read of the old one is gone, and rightly; the new one begins at offset 0."""
    past.topic(topic_id=OLD_ID, at_us=10)
    past.commit(RemoveTopicRecord(topic_id=OLD_ID), at_us=30_000)
    past.topic(topic_id=ID, at_us=40_000)
    for it in past.history.produces:
        it.topic_id = str(OLD_ID)
    past.history.consumed[:] = [replace(it, topic_id=str(OLD_ID)) for it in past.history.consumed]
    past.history.produces.append(past.record(4, topic_id=str(ID), invoked_us=50_000, returned_us=51_000, offset=0))
    past.read(0, "w/4", at_us=60_000, topic_id=ID)
    past.finally_has("w/4")
    check(past)
    past.read(0, "w/1", at_us=61_000, topic_id=ID)
    with pytest.raises(Violation, match="offset 0 was read as w/1"):
        ConsumptionConsistent(past.world).at_end()


def test_an_excuse_belongs_to_one_topic_of_a_name(past: Past) -> None:
    past.topic(topic_id=OLD_ID, at_us=10)
    replica_facts(past.world).excuses[TopicIdPartition(OLD_ID, 0)] = "a power cut"
    past.history.consumed[:] = [replace(it, topic_id=str(OLD_ID)) for it in past.history.consumed]
    past.read(1, "w/2", topic_id=OLD_ID)
    check(past)


def test_metadata_that_was_read_and_changed_as_the_log_says(past: Past) -> None:
    first = past.topic(at_us=100)
    past.looked(first, "orders", at_us=300)
    created = past.topic("t", UUID(int=9), at_us=1_500, partitions=1)
    past.admin("create_topics", topic="t", partitions=1)
    past.admin("create_topics", Verdict.UNKNOWN, "timed out", topic="u", partitions=1)
    past.admin("create_topics", Verdict.FAILED, "TOPIC_ALREADY_EXISTS", topic="t", partitions=1)
    past.looked(first, "orders", at_us=2_500, broker=3)
    past.history.metadata.append(
        MetadataRead(
            client="admin",
            broker=NodeId(2),
            invoked_us=2_600,
            returned_us=2_700,
            metadata_offset=created,
            leaders={TP: (NodeId(2), 0), TopicPartition("t", 0): (NodeId(2), 0)},
            topic_ids={"orders": str(ID), "t": str(UUID(int=9))},
            configs={"orders": {}, "t": {}},
        )
    )
    check(past)


def test_a_call_without_a_verdict_is_no_matter_of_safety(past: Past) -> None:
    past.history.produces[0].verdict = Verdict.OPEN
    with pytest.raises(LivenessViolation):
        OneVerdict(past.world).at_end()
