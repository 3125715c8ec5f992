"""CM-15 to CM-25: topics, partitions, placement."""

from __future__ import annotations

import random
from collections import Counter
from uuid import UUID

import pytest

from kraftlite.controller.placement import StripedPlacer, UsableBroker
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from tests.harness.controller_world import World


@pytest.fixture
def world() -> World:
    world = World()
    world.start_brokers(1, 2, 3)
    return world


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "ä", "a/b", "a:b"])
def test_cm_15_illegal_names(world: World, name: str) -> None:
    assert world.create(name).error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_cm_15_collisions_and_existing(world: World) -> None:
    assert world.create("a" * 249).error is ErrorCode.NONE
    assert world.create("x.y_z-1").error is ErrorCode.NONE
    assert world.create("x.y_z-1").error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert world.create("x_y.z-1").error is ErrorCode.INVALID_TOPIC_EXCEPTION
    both = world.create_many(world.topic("p.q"), world.topic("p_q")).value.topics
    assert [topic.error for topic in both] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]
    world.delete("x.y_z-1")
    assert world.create("x_y.z-1").error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("partitions", "rf", "error"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
        (-1, -1, ErrorCode.NONE),
    ],
)
def test_cm_16_counts(world: World, partitions: int, rf: int, error: ErrorCode) -> None:
    assert world.create("t", partitions, rf).error is error


def test_cm_16_minus_one_is_the_cluster_default() -> None:
    world = World(default_num_partitions=4, default_replication_factor=2)
    world.start_brokers(1, 2)
    result = world.create("t", -1, -1)
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_cm_17_all_fenced_is_explained() -> None:
    world = World()
    world.register(1)
    result = world.create("t")
    assert result.error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "fenced" in str(result.message)


def test_cm_17_rf_may_exceed_the_unfenced_brokers(world: World) -> None:
    world.fence(2)
    assert world.create("t", 1, 3).error is ErrorCode.NONE
    assert sorted(world.partition().replicas) == [1, 2, 3]
    assert sorted(world.partition().isr) == [1, 3]


@pytest.mark.parametrize(
    ("assignments", "error"),
    [
        ([[1, 2], [2, 3]], ErrorCode.NONE),
        ([[1, 2], [3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1], []], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_cm_18_manual_assignments(world: World, assignments: list[list[int]], error: ErrorCode) -> None:
    assert world.create("t", assignments=assignments).error is error


def test_cm_18_manual_assignment_shape(world: World) -> None:
    def create(partitions: int, rf: int, *indexes: int) -> ErrorCode:
        manual = tuple(m.ReplicaAssignment(partition=index, broker_ids=(NodeId(1),)) for index in indexes)
        topic = m.CreatableTopic(name="t", num_partitions=partitions, replication_factor=rf, assignments=manual, configs=())
        code: ErrorCode = world.create_many(topic).value.topics[0].error
        return code

    assert create(1, -1, 0) is ErrorCode.INVALID_REQUEST
    assert create(-1, 1, 0) is ErrorCode.INVALID_REQUEST
    assert create(-1, -1, 0, 2) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert create(-1, -1, 1, 0, 1) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    world.fence(1)
    assert create(-1, -1, 0) is ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no live replica"


def test_cm_19_new_partition(world: World) -> None:
    world.fence(3)
    world.create("t", assignments=[[3, 2, 1]])
    partition = world.partition()
    assert (partition.isr, partition.leader) == ((2, 1), 2)
    assert (partition.leader_epoch, partition.partition_epoch, partition.recovering) == (0, 0, False)


def usable(count: int, racks: int = 1, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [
        UsableBroker(broker_id=NodeId(i), rack=f"r{i % racks}" if racks > 1 else None, fenced=i in fenced) for i in range(count)
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("brokers", "racks", "rf"), [(3, 1, 3), (6, 3, 3), (7, 2, 2), (9, 3, 4), (5, 5, 1)])
def test_cm_20_placement_spreads(seed: int, brokers: int, racks: int, rf: int) -> None:
    placed = StripedPlacer(random.Random(seed)).place(600, rf, usable(brokers, racks))
    assert all(len(set(replicas)) == rf for replicas in placed)
    for replicas in placed:
        assert len({b % racks for b in replicas}) == min(rf, racks), "racks first"
    if brokers % racks == 0:
        leaders = Counter(replicas[0] for replicas in placed)
        assert max(leaders.values()) - min(leaders[NodeId(b)] for b in range(brokers)) <= 600 // brokers // 5
        load = Counter(broker for replicas in placed for broker in replicas)
        assert max(load.values()) - min(load.values()) <= 600 * rf // brokers // 5


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("brokers", "racks", "rf"), [(3, 1, 3), (3, 3, 3), (4, 1, 3), (5, 1, 2), (6, 3, 3), (6, 2, 2)])
def test_cm_20_what_a_broker_leads_goes_to_all_others_when_it_fails(seed: int, brokers: int, racks: int, rf: int) -> None:
    placed = StripedPlacer(random.Random(seed)).place(3_000, rf, usable(brokers, racks))
    for failed in range(brokers):
        heirs = Counter(replicas[1] for replicas in placed if replicas[0] == failed)
        others = [NodeId(it) for it in range(brokers) if it != failed and (racks == 1 or it % racks != failed % racks)]
        even = sum(heirs.values()) / len(others)
        assert set(heirs) == set(others)
        assert all(0.5 * even < heirs[other] < 1.5 * even for other in others), heirs


def test_cm_20_the_preferred_leader_is_live() -> None:
    placed = StripedPlacer(random.Random(1)).place(200, 3, usable(6, 3, fenced=(0, 3, 4)))
    assert all(replicas[0] not in (0, 3, 4) for replicas in placed)
    with pytest.raises(ApiError):
        StripedPlacer(random.Random(1)).place(1, 1, usable(2, fenced=(0, 1)))


def test_cm_21_ids_are_random_and_never_reused(world: World) -> None:
    first = world.create("t").topic_id
    world.delete("t")
    second = world.create("t").topic_id
    assert isinstance(first, UUID)
    assert first != second
    assert first is not None
    assert first.version == 4


def test_cm_22_a_bad_config_creates_nothing(world: World) -> None:
    end = world.quorum.leo
    for configs in ({"retention.ms": "soon"}, {"no.such.key": "1"}, {"retention.ms": None}):
        assert world.create("t", configs=configs).error is ErrorCode.INVALID_CONFIG
    assert world.quorum.leo == end
    assert world.create("t", configs={"retention.ms": "5"}).error is ErrorCode.NONE
    assert world.state.configs.get((2, "t")) == {"retention.ms": "5"}
    batch = world.quorum.batches[-1]
    assert len(batch.records) == 3, "one batch for the topic, its config and its partition"


def test_cm_22_effective_configs_are_reported(world: World) -> None:
    configs = {value.name: value for value in world.create("t", configs={"retention.ms": "5"}).configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].source) == ("5", 1)
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].source) == ("delete", 5)


def delete(world: World, *selectors: tuple[str | None, UUID | None]) -> list[ErrorCode]:
    request = m.DeleteTopicsRequest(
        topics=tuple(m.TopicSelector(name=name, topic_id=topic_id) for name, topic_id in selectors), timeout_ms=1_000
    )
    answer = world.submit("delete", lambda _now: world.state.topics.delete(request))
    return [topic.error for topic in answer.value.topics]


def test_cm_23_delete_by_name_or_id_with_configs(world: World) -> None:
    world.create("a", configs={"retention.ms": "5"})
    topic_id = world.create("b", 3, 3).topic_id
    assert delete(world, ("a", None), (None, topic_id), ("no", None), (None, UUID(int=12345))) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    assert world.state.configs.get((2, "a")) == {}
    assert world.active.core.metrics.global_partition_count == 0
    world.check()


def test_cm_23_deletion_may_be_disabled() -> None:
    world = World(delete_topic_enable=False)
    world.start_brokers(1)
    world.create("t")
    assert world.delete("t").code is ErrorCode.TOPIC_DELETION_DISABLED


def grow(world: World, count: int, assignments: list[list[int]] | None = None, name: str = "t") -> ErrorCode:
    manual = (
        None
        if assignments is None
        else tuple(
            m.ReplicaAssignment(partition=i, broker_ids=tuple(NodeId(b) for b in brokers))
            for i, brokers in enumerate(assignments)
        )
    )
    topic = m.CreatePartitionsTopic(name=name, count=count, assignments=manual)
    request = m.CreatePartitionsRequest(topics=(topic,), validate_only=False, timeout_ms=1_000)
    code: ErrorCode = world.submit("grow", lambda _now: world.state.topics.create_partitions(request)).value.topics[0].error
    return code


def test_cm_24_create_partitions(world: World) -> None:
    world.create("t", 2, 2)
    before = [world.partition("t", index) for index in (0, 1)]
    assert grow(world, 2) is grow(world, 1) is ErrorCode.INVALID_PARTITIONS
    assert grow(world, 4, [[1, 2]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(world, 3, [[1, 2, 3]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(world, 3, name="no") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(world, 4) is ErrorCode.NONE
    assert grow(world, 5, [[3, 1]]) is ErrorCode.NONE
    assert [world.partition("t", index) for index in (0, 1)] == before
    assert world.partition("t", 4).replicas == (3, 1)
    assert all(len(world.partition("t", index).replicas) == 2 for index in range(5))


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_cm_24_the_topics_of_coordinators_grow_as_others(world: World, name: str) -> None:
    """As in Kafka, which warns nobody: what becomes of the ids is the coordinators' concern (TX-64)."""
    world.create(name, 2, 2)
    assert grow(world, 3, name=name) is ErrorCode.NONE
    assert len(world.partition(name, 2).replicas) == 2


def test_cm_25_duplicates_fail_alone(world: World) -> None:
    topic_id = world.create("a").topic_id
    world.create("b")
    bad = ErrorCode.INVALID_REQUEST
    assert delete(world, ("a", topic_id), (None, None)) == [bad, bad]
    assert delete(world, ("a", None), ("a", None), ("b", None)) == [bad, ErrorCode.NONE]
    assert "a" in world.state.replication.topic_ids
    assert delete(world, (None, None), (None, None)) == [bad, bad], "what names nothing is answered each time"


def test_cm_25_what_a_deletion_names_twice_is_refused_once(world: World) -> None:
    topic_id, other = world.create("a").topic_id, UUID(int=99)

    def asked(*selectors: tuple[str | None, UUID | None]) -> list[tuple[str | None, UUID | None, str | None]]:
        request = m.DeleteTopicsRequest(topics=tuple(m.TopicSelector(name=n, topic_id=i) for n, i in selectors), timeout_ms=1_000)
        answer = world.submit("delete", lambda _now: world.state.topics.delete(request)).value
        return [(it.name, it.topic_id, it.message) for it in answer.topics]

    name, known = ("a", None), (None, topic_id)
    supplied = ("a", topic_id, "The provided topic name maps to an ID that was already supplied.")
    assert asked(name, name, ("no", None), ("no", None)) == [
        (*name, "Duplicate topic name."),
        ("no", None, "Duplicate topic name."),
    ]
    assert asked(known, known, (None, other), (None, other)) == [
        (*known, "Duplicate topic id."),
        (None, other, "Duplicate topic id."),
    ]
    assert asked(name, known) == asked(known, name) == [supplied]
    assert asked(known, name, known) == [(*known, "Duplicate topic id."), supplied]
    assert "a" in world.state.replication.topic_ids
    assert asked(name, known, name) == [(*name, "Duplicate topic name."), ("a", topic_id, None)], "the id is given once"
    assert "a" not in world.state.replication.topic_ids


def test_cm_25_a_selector_of_both_kinds_makes_no_name_a_duplicate(world: World) -> None:
    topic_id = world.create("a").topic_id
    selectors = (m.TopicSelector(name="a", topic_id=topic_id), m.TopicSelector(name="a", topic_id=None))
    request = m.DeleteTopicsRequest(topics=selectors, timeout_ms=1_000)
    refused, deleted = world.submit("delete", lambda _now: world.state.topics.delete(request)).value.topics
    assert (refused.error, refused.message) == (ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    assert deleted.error is ErrorCode.NONE
