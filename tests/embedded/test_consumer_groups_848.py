"""Consumers of the new group protocol (KIP-848) with a real client: rebalances, a coordinator that dies, regular expressions,
static members, and groups in which both protocols meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from click.testing import CliRunner

from kraftlite.cli.main import cli
from kraftlite.coordinator.core.placement import partition_for
from tests.harness.embedded import QUICK, Embedded, embedded
from tests.harness.local import PATIENCE_S, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]

PARTITIONS = 4
RECORDS = 80
_NUMBERS = count(1)


@pytest.fixture(scope="module")
def shared() -> Iterator[Embedded]:
    with embedded(controllers=1, brokers=3, config={"group.initial.rebalance.delay.ms": "100"}) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Embedded) -> Iterator[Embedded]:
    yield shared
    shared.heal()
    shared.wait_quorum(caught_up=True)


@pytest.fixture
def topic() -> str:
    return f"new-{next(_NUMBERS)}"


class Group:
    """Consumers of one group; all are polled whenever something is waited for. Closes them."""

    def __init__(self, cluster: Embedded, group_id: str) -> None:
        self._cluster = cluster
        self.group_id = group_id
        self.consumers: list[Any] = []
        self.read: list[str] = []

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        for consumer in list(self.consumers):
            self.leave(consumer)

    def join(self, *topics: str, protocol: str = "consumer", **config: object) -> Any:
        from confluent_kafka import Consumer

        classic = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 200, "partition.assignment.strategy": "range"}
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "group.id": self.group_id,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                **(classic if protocol == "classic" else {}),
                **QUICK,
                **config,
            }
        )
        consumer.subscribe(list(topics))
        self.consumers.append(consumer)
        return consumer

    def leave(self, consumer: Any) -> None:
        self.consumers.remove(consumer)
        consumer.close()

    def poll(self) -> None:
        for consumer in self.consumers:
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                self.read.append(message.value().decode())

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        def step() -> bool:
            self.poll()
            return condition()

        wait_for(what, step, timeout_s=PATIENCE_S, every_s=0)

    def shared(self, partitions: int = PARTITIONS) -> bool:
        """Everybody owns something, and every partition is owned once."""
        assignments = [consumer.assignment() for consumer in self.consumers]
        owned = sorted((tp.topic, tp.partition) for one in assignments for tp in one)
        return all(assignments) and len(owned) == len(set(owned)) == partitions

    def positions(self) -> int:
        """How many records lie before where the consumers are, if they are anywhere."""
        return sum(max(tp.offset, 0) for consumer in self.consumers for tp in consumer.position(consumer.assignment()))

    def describe(self) -> Any:
        return self._cluster.admin().describe_consumer_groups([self.group_id])[self.group_id].result(PATIENCE_S)

    def committed(self) -> dict[int, int]:
        from confluent_kafka import ConsumerGroupTopicPartitions

        asked = [ConsumerGroupTopicPartitions(self.group_id)]
        found = self._cluster.admin().list_consumer_group_offsets(asked)[self.group_id].result(PATIENCE_S)
        return {tp.partition: tp.offset for tp in found.topic_partitions}

    def coordinator(self) -> int:
        partitions = len(self._cluster.partitions("__consumer_offsets"))
        return self._cluster.wait_leader("__consumer_offsets", partition_for(self.group_id, partitions))


def filled(cluster: Embedded, topic: str) -> list[str]:
    cluster.create_topic(topic, partitions=PARTITIONS)
    values = [f"{topic}:{n}" for n in range(RECORDS)]
    for partition in range(PARTITIONS):
        assert cluster.produce(topic, values[partition::PARTITIONS], partition=partition) == []
    return values


def state(group: Group) -> tuple[str, str]:
    described = group.describe()
    return described.state.name, described.type.name


def test_two_consumers_share_rebalance_and_restart_from_the_commit(cluster: Embedded, topic: str) -> None:
    values = filled(cluster, topic)
    with Group(cluster, f"g-{topic}") as group:
        first = group.join(topic)
        group.until("the first owns all", group.shared)
        second = group.join(topic)
        group.until("both share", group.shared)
        group.until("both are at the ends", lambda: group.positions() == RECORDS)
        assert sorted(set(group.read)) == sorted(values), "what moved was not committed yet, so some may be read twice"
        first.commit(asynchronous=False)
        second.commit(asynchronous=False)
        assert sum(group.committed().values()) == RECORDS
        wait_for("it is stable", lambda: state(group) == ("STABLE", "CONSUMER"))
        members = group.describe().members
        assert sorted(len(member.assignment.topic_partitions) for member in members) == [2, 2]
        group.leave(second)
        group.until("the first owns all again", group.shared)
        group.leave(first)
        assert state(group) == ("EMPTY", "CONSUMER")
        group.read.clear()
        for partition in range(PARTITIONS):
            assert cluster.produce(topic, [f"late:{partition}"], partition=partition) == []
        group.join(topic)
        group.until("the rest is read", lambda: len(group.read) >= PARTITIONS)
        assert sorted(group.read) == [f"late:{partition}" for partition in range(PARTITIONS)]


def test_to_27_the_command_tells_its_epochs_and_targets(cluster: Embedded, topic: str) -> None:
    filled(cluster, topic)
    with Group(cluster, f"g-{topic}") as group:
        group.join(topic, **{"client.id": "me"})
        group.until("it owns all", group.shared)

        def described(*options: str) -> list[str]:
            """The last row, of the only member or of the group."""
            group.poll()
            arguments = ["group", "describe", group.group_id, *options, "--verbose", "--bootstrap-server", cluster.bootstrap]
            result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
            assert result.exit_code == 0, result.output
            return result.stdout.splitlines()[-1].split()

        wait_for("it is stable", lambda: "Stable" in described("--state"))
        *_names, strategy, state, epoch, target, members = described("--state")
        assert (strategy, state, members) == ("uniform", "Stable", "1") and int(epoch) == int(target) >= 1
        all_of_it = f"{topic}:{','.join(map(str, range(PARTITIONS)))}"
        _group, _member, host, client, *rest = described("--members")
        assert (host, client, rest) == ("/127.0.0.1", "me", [str(PARTITIONS), epoch, all_of_it, target, all_of_it])


def test_a_group_survives_its_coordinator(cluster: Embedded, topic: str) -> None:
    """CG-04. SIGKILL in the middle of a rebalance: epochs go on where they were, nobody is fenced, nothing committed is lost."""
    filled(cluster, topic)
    with Group(cluster, f"g-{topic}") as group:
        first = group.join(topic)
        group.until("all is read", lambda: len(group.read) >= RECORDS)
        first.commit(asynchronous=False)
        committed = group.committed()
        group.join(topic)
        group.join(topic)
        dead = group.coordinator()
        cluster.kill(dead)
        group.until("all three share", group.shared)
        cluster.wait_leader("__consumer_offsets", partition_for(group.group_id, 3), not_in=(dead,))
        assert group.committed() == committed
        assert len(group.describe().members) == 3
        cluster.restart(dead)
        group.until("still", group.shared)
        group.read.clear()
        for partition in range(PARTITIONS):
            assert cluster.produce(topic, [f"after:{partition}"], partition=partition) == []
        group.until("what came after is read", lambda: len(group.read) >= PARTITIONS)
        assert sorted(group.read) == [f"after:{partition}" for partition in range(PARTITIONS)], "nothing is read twice"


def test_a_regular_expression_follows_the_topics(cluster: Embedded, topic: str) -> None:
    filled(cluster, f"{topic}-a")
    cluster.create_topic(f"other-{topic}", partitions=1)
    with Group(cluster, f"g-{topic}") as group:
        group.join(f"^{topic}-.*")
        group.until("the topic is assigned", group.shared)
        cluster.create_topic(f"{topic}-b", partitions=2)
        group.until("and the one that came", lambda: group.shared(PARTITIONS + 2))


def test_more_partitions_are_assigned(cluster: Embedded, topic: str) -> None:
    from confluent_kafka.admin import NewPartitions

    filled(cluster, topic)
    with Group(cluster, f"g-{topic}") as group:
        group.join(topic)
        group.join(topic)
        group.until("both share", group.shared)
        cluster.admin().create_partitions([NewPartitions(topic, PARTITIONS + 3)])[topic].result(PATIENCE_S)
        group.until("the new ones too", lambda: group.shared(PARTITIONS + 3))


def test_a_static_member_restarts_without_a_rebalance(cluster: Embedded, topic: str) -> None:
    filled(cluster, topic)
    with Group(cluster, f"g-{topic}") as group:
        first = group.join(topic, **{"group.instance.id": "one"})
        second = group.join(topic, **{"group.instance.id": "two"})
        group.until("both share", group.shared)
        theirs, mine = first.assignment(), second.assignment()
        group.leave(second)
        assert len(group.describe().members) == 2, "it is expected back"
        second = group.join(topic, **{"group.instance.id": "two"})
        group.until("it has its partitions back", group.shared)
        assert second.assignment() == mine
        assert first.assignment() == theirs


def test_classic_consumers_are_upgraded_and_downgraded_in_place(cluster: Embedded, topic: str) -> None:
    """CG-08."""
    filled(cluster, topic)
    with Group(cluster, f"g-{topic}") as group:
        old = group.join(topic, protocol="classic")
        group.until("the classic one owns all", group.shared)
        assert state(group)[1] == "CLASSIC"
        new = group.join(topic)
        group.until("both share", group.shared)
        assert state(group)[1] == "CONSUMER"
        group.leave(new)
        group.until("the classic one owns all again", group.shared)
        assert state(group)[1] == "CLASSIC"
        group.join(topic)
        group.until("both share again", group.shared)
        group.leave(old)
        group.until("the new one owns all", group.shared)
        assert state(group)[1] == "CONSUMER"


def test_an_empty_group_can_be_listed_and_deleted(cluster: Embedded, topic: str) -> None:
    from confluent_kafka import ConsumerGroupState, ConsumerGroupType

    filled(cluster, topic)
    with Group(cluster, f"g-{topic}") as group:
        group.join(topic, **{"group.remote.assignor": "range"})
        group.until("it owns all", group.shared)
        assert group.describe().partition_assignor == "range"
    admin = cluster.admin()

    def listed(**kwargs: Any) -> list[str]:
        found = admin.list_consumer_groups(**kwargs).result(PATIENCE_S)
        assert found.errors == []
        return [one.group_id for one in found.valid]

    assert group.group_id in listed(types={ConsumerGroupType.CONSUMER}, states={ConsumerGroupState.EMPTY})
    assert group.group_id not in listed(types={ConsumerGroupType.CLASSIC})
    admin.delete_consumer_groups([group.group_id])[group.group_id].result(PATIENCE_S)
    assert group.group_id not in listed()


def test_consumers_come_back_when_all_brokers_were_cut_from_the_controller(cluster: Embedded, topic: str) -> None:
    """All brokers are fenced meanwhile; each hears of that and of its return at once. While a broker knows of none that is not
    fenced, its Metadata names none, as that of Apache Kafka 4.3: librdkafka does not always come back from that."""
    cluster.create_topic(topic, partitions=PARTITIONS)
    assert cluster.produce(topic, ["before"]) == []
    with Group(cluster, f"g-{topic}-848") as new, Group(cluster, f"g-{topic}-classic") as classic:
        new.join(topic)
        classic.join(topic, protocol="classic")
        for group in (new, classic):
            group.until("the first record", lambda group=group: group.read == ["before"])
        cluster.cluster.cut(cluster.controllers, cluster.brokers)
        new.until("all brokers are fenced", lambda: cluster.cluster.live_brokers() == ())
        cluster.cluster.heal()
        new.until("all brokers are back", lambda: cluster.cluster.live_brokers() == tuple(cluster.brokers))
        assert cluster.produce(topic, ["after"]) == []
        for group in (new, classic):
            group.until("the record that came after it", lambda group=group: group.read == ["before", "after"])
