"""Images and deltas: ML-01, ML-12 to ML-18, ML-26."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.records import (
    AccessControlEntryRecord,
    ClearElrRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from kraftlite.metadata.topics_delta import LocalChanges, TopicsDelta
from kraftlite.model.errors import Fault
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from tests.harness.metadata_support import LogMaker, broker, image_of, nodes, partition, provenance, topic

T1 = UUID(int=1)


def change(index: int = 0, **fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=T1, partition=index, **fields)  # type: ignore[arg-type]


def test_ml_01_a_held_image_never_changes_and_its_two_topic_maps_always_agree() -> None:
    maker = LogMaker(random.Random(7))
    held = []
    image = MetadataImage.EMPTY
    for _ in range(60):
        image = image_of(maker.take(5), image)
        held.append((image, list(image.write())))
    for image, written in held:
        assert list(image.write()) == written
        assert {t.topic_id: t for t in image.topics} == dict(image.topics.by_id.items())
        assert all(image.topics.by_name[t.name] is t for t in image.topics.by_id.values())


def test_ml_12_a_snapshot_removes_what_it_does_not_name() -> None:
    kept = [FeatureLevelRecord(name="metadata.version", level=30), broker(1), *topic("stays", 1)]
    kept.append(ConfigRecord(resource_type=2, resource_name="stays", name="a", value="1"))
    gone = [
        FeatureLevelRecord(name="f", level=1),
        broker(2),
        RegisterControllerRecord(controller_id=NodeId(9), incarnation_id=T1, listeners=(), features=()),
        *topic("goes", 2),
        ConfigRecord(resource_type=2, resource_name="goes", name="a", value="1"),
        ConfigRecord(resource_type=2, resource_name="stays", name="b", value="1"),
        ProducerIdsRecord(broker_id=NodeId(1), broker_epoch=1, next_producer_id=1000),
    ]
    before, wanted = image_of([*kept, *gone]), image_of(kept)
    delta = MetadataDelta(before)
    for record in wanted.write():
        delta.replay(record)
    delta.finish_snapshot()
    after = delta.apply(wanted.provenance)
    assert after == wanted
    assert delta.topics is not None and delta.cluster is not None and delta.configs is not None
    assert list(delta.topics.deleted) == [UUID(int=2)]
    assert delta.cluster.changed_brokers == {2: None}
    assert delta.cluster.changed_controllers == {9: None}
    assert set(delta.configs.changed) == {(2, "goes"), (2, "stays")}
    assert delta.topics.local_changes(NodeId(1)).deletes == ((TopicPartition("goes", 0), UUID(int=2)),)


def test_ml_12_a_snapshot_that_says_the_same_changes_nothing() -> None:
    before = image_of([broker(1), *topic("t", 1, 40)])
    delta = MetadataDelta(before)
    for record in before.write():
        delta.replay(record)
    delta.finish_snapshot()
    after = delta.apply(before.provenance)
    assert after.topics is before.topics
    assert after.cluster is before.cluster
    assert delta.topics is not None and delta.topics.local_changes(NodeId(1)) == LocalChanges()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(0, 40))
def test_ml_12_loading_a_snapshot_of_any_image_onto_any_earlier_one_gives_it(seed: int, first: int, more: int) -> None:
    maker = LogMaker(random.Random(seed))
    before = image_of(maker.take(first))
    wanted = image_of(maker.take(more), before)
    delta = MetadataDelta(before)
    for record in wanted.write():
        delta.replay(record)
    delta.finish_snapshot()
    assert delta.apply(wanted.provenance) == wanted


def test_ml_13_a_snapshot_keeps_what_nothing_here_acts_on() -> None:
    entry = AccessControlEntryRecord(
        id=T1, resource_type=2, resource_name="t", pattern_type=3, principal="User:a", host="*", operation=3, permission_type=3
    )
    token = DelegationTokenRecord(
        owner="User:a", requester="User:b", renewers=(), issue_timestamp_ms=1, max_timestamp_ms=3, expiration_timestamp_ms=2,
        token_id="x",
    )  # fmt: skip
    before = image_of([entry, token, replace(token, expiration_timestamp_ms=3)])
    assert list(before.write()) == [entry, replace(token, expiration_timestamp_ms=3)]
    after = image_of([RemoveAccessControlEntryRecord(id=T1), RemoveDelegationTokenRecord(token_id="x")], before)
    assert list(after.write()) == []
    with pytest.raises(Fault, match="removes access control entry"):
        image_of([RemoveAccessControlEntryRecord(id=T1)], after)


def test_clearing_eligible_replicas_changes_the_partitions_that_had_any() -> None:
    before = image_of([*topic("a", 1, 2), *topic("b", 2), change(1, elr=nodes(3))])
    records = [PartitionChangeRecord(topic_id=UUID(int=2), partition=0, last_known_elr=nodes(2)), ClearElrRecord(topic_name="")]
    after = image_of(records, before)
    epochs = [after.topics.by_id[it].partitions[index].partition_epoch for it, index in ((T1, 0), (T1, 1), (UUID(int=2), 0))]
    assert epochs == [0, 2, 2]
    assert not any(it.elr or it.last_known_elr for one in after.topics for it in one.partitions.values())
    one = image_of([ClearElrRecord(topic_name="b")], before)
    assert one.topics is before.topics
    with pytest.raises(Fault, match="topic c, which does not exist"):
        image_of([ClearElrRecord(topic_name="c")], before)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 60))
def test_ml_13_an_image_written_and_read_back_is_equal(seed: int, count: int) -> None:
    serde = MetadataSerde()
    image = image_of(LogMaker(random.Random(seed)).take(count))
    records = [serde.decode(serde.encode(record)) for record in image.write()]
    assert image_of(records).topics == image.topics
    delta = MetadataDelta(MetadataImage.EMPTY)
    for record in records:
        delta.replay(record)
    assert delta.apply(image.provenance) == image
    if image.features.metadata_version is not None:
        first = records[0]
        assert isinstance(first, FeatureLevelRecord) and first.name == "metadata.version"
        assert serde.encode(first)[:3] == bytes((1, 12, 0))
    assert all(record not in records[:index] for index, record in enumerate(records))  # each fact is written once


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 60))
def test_ml_14_the_delta_between_two_images_applied_to_the_first_gives_the_second(seed: int, first: int, more: int) -> None:
    maker = LogMaker(random.Random(seed))
    prefix, rest = maker.take(first), maker.take(more)
    before = image_of(prefix)
    whole = image_of([*prefix, *rest])
    one_by_one = before
    for record in rest:
        one_by_one = image_of([record], one_by_one)
    at_once = image_of(rest, before)
    for image in (at_once, one_by_one):
        assert replace(image, provenance=whole.provenance) == whole


def test_ml_15_parts_that_a_delta_does_not_touch_are_the_same_objects() -> None:
    before = image_of([FeatureLevelRecord(name="f", level=1), broker(1), *topic("a", 1, 100), *topic("b", 2)])
    after = image_of([change(7, isr=nodes(1))], before)
    for part in ("features", "cluster", "configs", "producer_ids"):
        assert getattr(after, part) is getattr(before, part)
    assert after.topics.topic("b") is before.topics.topic("b")
    old, new = before.topics.by_id[T1], after.topics.by_id[T1]
    assert all((new.partitions[index] is old.partitions[index]) == (index != 7) for index in range(100))


def test_ml_16_unchanged_none_and_empty_are_three_things_also_on_disk() -> None:
    serde = MetadataSerde()
    before = image_of([*topic("t", 1)])
    for record, leader, isr in (
        (change(), NodeId(1), nodes(1, 2, 3)),
        (change(leader=None, isr=()), None, ()),
        (change(leader=NodeId(2)), NodeId(2), nodes(1, 2, 3)),
        (change(isr=nodes(1)), NodeId(1), nodes(1)),
    ):
        read = serde.decode(serde.encode(record))
        assert read == record
        after = image_of([read], before).topics.partition(T1, 0)
        assert after is not None
        assert (after.leader, after.isr, after.replicas) == (leader, isr, nodes(1, 2, 3))


OLD_DIR, NEW_DIR = UUID(int=2001), UUID(int=4001)

LOCAL_CASES = {
    # name: (replicas before (None: new partition), record, wanted buckets for broker 1)
    "new partition that it leads": (None, partition(T1, 0), {"leaders", "elected", "directories"}),
    "new partition that it follows": (None, partition(T1, 0, (2, 1)), {"followers", "directories"}),
    "new partition elsewhere": (None, partition(T1, 0, (2, 3)), set()),
    "isr changes under its leadership": ((1, 2, 3), change(isr=nodes(1)), {"leaders"}),
    "it becomes leader": ((2, 1), change(leader=NodeId(1)), {"leaders", "elected"}),
    "it loses leadership": ((1, 2), change(leader=NodeId(2)), {"followers"}),
    "leader goes away": ((1, 2), change(leader=None), {"followers"}),
    "isr changes while it follows": ((2, 1), change(isr=nodes(2)), {"followers"}),
    "it is removed": ((1, 2), change(replicas=nodes(2), isr=nodes(2), leader=NodeId(2), directories=()), {"deletes"}),
    "it is added": (
        (2, 3),
        change(replicas=nodes(2, 3, 1), directories=(UUID(int=2002), UUID(int=2003), OLD_DIR)),
        {"followers", "directories"},
    ),
    "change elsewhere": ((2, 3), change(isr=nodes(2)), set()),
    "only its directory changes": ((1, 2), change(directories=(NEW_DIR, UUID(int=2002))), {"leaders", "directories"}),
}


@pytest.mark.parametrize("name", LOCAL_CASES)
def test_ml_17_local_changes(name: str) -> None:
    replicas, record, wanted = LOCAL_CASES[name]
    base = [TopicRecord(name="t", topic_id=T1)] + ([] if replicas is None else [partition(T1, 0, replicas)])
    delta = MetadataDelta(image_of(base))
    delta.replay(record)
    assert delta.topics is not None
    local = delta.topics.local_changes(NodeId(1))
    tp = TopicPartition("t", 0)
    found = {
        name
        for name, bucket in (
            ("leaders", local.leaders),
            ("elected", local.elected_leaders),
            ("followers", local.followers),
        )
        if tp in bucket
    }
    found |= {"deletes"} if local.deletes == ((tp, T1),) else set()
    found |= {"directories"} if TopicIdPartition(T1, 0) in local.directories else set()
    assert found == wanted
    for bucket in (local.leaders, local.followers):
        for change_of in bucket.values():
            assert change_of.topic_id == T1
            assert change_of.registration == delta.apply(provenance()).topics.partition(T1, 0)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), before=st.integers(0, 60), parts=st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_ml_17_deltas_merged_are_the_delta_of_all_their_records(seed: int, before: int, parts: list[int]) -> None:
    maker = LogMaker(random.Random(seed))
    base = image = image_of(maker.take(before))
    whole, deltas = MetadataDelta(base), []
    for count in parts:
        delta = MetadataDelta(image)
        for record in maker.take(count):
            delta.replay(record)
            whole.replay(record)
        image = delta.apply(provenance(0))
        deltas.append(delta.get_topics())
    merged = TopicsDelta.merged(deltas)
    assert merged.image is base.topics
    assert merged.apply() == image.topics == whole.get_topics().apply()
    for broker_id in nodes(1, 2, 3, 4, 5):
        assert merged.local_changes(broker_id) == whole.get_topics().local_changes(broker_id)
    assert [topic.name for topic in merged.deleted.values()] == [topic.name for topic in whole.get_topics().deleted.values()]


def test_ml_17_deleting_a_topic_deletes_only_the_replicas_held_here() -> None:
    delta = MetadataDelta(image_of([TopicRecord(name="t", topic_id=T1), partition(T1, 0, (1, 2)), partition(T1, 1, (2, 3))]))
    delta.replay(RemoveTopicRecord(topic_id=T1))
    assert delta.topics is not None
    assert delta.topics.local_changes(NodeId(1)).deletes == ((TopicPartition("t", 0), T1),)
    assert delta.topics.local_changes(NodeId(3)).deletes == ((TopicPartition("t", 1), T1),)


def test_ml_18_a_topic_deleted_and_created_again_between_publishes_is_a_delete_and_a_create() -> None:
    config = ConfigRecord(resource_type=2, resource_name="t", name="a", value="1")
    before = image_of([*topic("t", 1), config])
    delta = MetadataDelta(before)
    for record in [RemoveTopicRecord(topic_id=T1), *topic("t", 2)]:
        delta.replay(record)
    after = delta.apply(provenance(9))
    assert [t.topic_id for t in after.topics] == [UUID(int=2)]
    assert after.topics.topic_by_id(T1) is None
    assert after.configs.get(2, "t") == {}
    assert delta.topics is not None and [gone.topic_id for gone in delta.topics.deleted.values()] == [T1]
    local = delta.topics.local_changes(NodeId(1))
    tp = TopicPartition("t", 0)
    assert local.deletes == ((tp, T1),)
    assert local.elected_leaders[tp].topic_id == UUID(int=2)


def test_ml_18_a_topic_created_and_deleted_between_publishes_leaves_no_trace() -> None:
    before = image_of([broker(1)])
    delta = MetadataDelta(before)
    for record in [*topic("t", 1), RemoveTopicRecord(topic_id=T1)]:
        delta.replay(record)
    assert delta.apply(provenance(9)).topics is before.topics
    assert delta.topics is not None and delta.topics.local_changes(NodeId(1)) == LocalChanges()


def test_ml_26_an_unknown_metadata_version_says_what_to_do() -> None:
    for level in (0, 6, 31):
        with pytest.raises(Fault, match=rf"level {level}.*levels 7 to 30.*Run software"):
            image_of([FeatureLevelRecord(name="metadata.version", level=level)])


@pytest.mark.parametrize(
    "record",
    [
        change(isr=nodes(1)),
        change(9, isr=nodes(1)),
        RemoveTopicRecord(topic_id=UUID(int=77)),
        UnregisterBrokerRecord(broker_id=NodeId(5), broker_epoch=1),
        UnregisterBrokerRecord(broker_id=NodeId(1), broker_epoch=99),
        partition(UUID(int=77), 0),
    ],
)
def test_a_record_that_does_not_fit_the_image_is_a_fault(record: object) -> None:
    base = image_of([broker(1), *([] if record == change(isr=nodes(1)) else topic("t", 1))])
    with pytest.raises(Fault):
        image_of([record], base)  # type: ignore[list-item]
