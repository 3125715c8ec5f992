"""Groups survive their coordinator: real processes, a real client, SIGKILL."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.local import Cluster, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

PARTITIONS = 3


def describe(cluster: Cluster, group: str) -> Any:
    from confluent_kafka import KafkaException

    try:
        return cluster.admin().describe_consumer_groups([group], request_timeout=10)[group].result(12)
    except KafkaException:
        return None


def committed_by(consumer: Any) -> bool:
    """Whether all that it read is committed. False: the coordinator has just moved, and a client asks again."""
    from confluent_kafka import KafkaException

    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        return bool(error.args[0].name() == "_NO_OFFSET")  # nothing has been read since
    return True


def test_ml_22_cp_31_cp_37_the_coordinator_is_killed_and_the_group_goes_on() -> None:
    from confluent_kafka import Consumer, TopicPartition

    with running(controllers=1, brokers=3, config={"min.insync.replicas": "2"}) as cluster:
        cluster.create_topic("orders", partitions=PARTITIONS)
        revoked: list[Any] = []
        consumers = []
        for _ in range(2):
            consumer = Consumer(
                {
                    "bootstrap.servers": cluster.bootstrap,
                    "group.id": "shop",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "session.timeout.ms": 30_000,
                    "heartbeat.interval.ms": 500,
                    "log_level": 0,
                }
            )
            consumer.subscribe(["orders"], on_revoke=lambda _consumer, partitions: revoked.append(partitions))
            consumers.append(consumer)
        read: list[str] = []

        def poll() -> None:
            for consumer in consumers:
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    read.append(message.value().decode())

        def balanced() -> bool:
            poll()
            each = [consumer.assignment() for consumer in consumers]
            return all(each) and sorted(tp.partition for one in each for tp in one) == list(range(PARTITIONS))

        wait_for("both consumers are in the group", balanced)
        for partition in range(PARTITIONS):
            assert cluster.produce("orders", [f"{partition}:{n}" for n in range(20)], partition=partition) == []
        wait_for("all is read", lambda: poll() or len(read) == 60, every_s=0)
        assert all(consumer.assignment() for consumer in consumers)
        wait_for("all is committed", lambda: all(committed_by(consumer) for consumer in consumers))
        before = wait_for("the group is described", lambda: describe(cluster, "shop"))
        members = {
            member.member_id: sorted(tp.partition for tp in member.assignment.topic_partitions) for member in before.members
        }
        assert before.state.name == "STABLE" and len(members) == 2
        revoked.clear()

        cluster.kill(before.coordinator.id)

        def moved() -> Any:
            poll()
            found = describe(cluster, "shop")
            return found if found is not None and found.coordinator.id != before.coordinator.id else None

        after = wait_for("another broker coordinates", moved)
        assert after.state.name == "STABLE"
        assert {m.member_id: sorted(tp.partition for tp in m.assignment.topic_partitions) for m in after.members} == members
        for partition in range(PARTITIONS):
            assert cluster.produce("orders", [f"{partition}:{n}" for n in range(20, 25)], partition=partition) == []
        wait_for("the rest is read", lambda: poll() or len(read) == 75, every_s=0)
        assert len(set(read)) == 75
        committed = consumers[0].committed([TopicPartition("orders", p) for p in range(PARTITIONS)], timeout=30)
        assert [tp.offset for tp in committed] == [20] * PARTITIONS, "what was committed before is there"

        def commit() -> bool:
            poll()
            return all(committed_by(consumer) for consumer in consumers)

        wait_for("commits go to the new coordinator", commit)
        committed = consumers[0].committed([TopicPartition("orders", p) for p in range(PARTITIONS)], timeout=30)
        assert [tp.offset for tp in committed] == [25] * PARTITIONS
        assert revoked == [], "nobody had to rebalance"
        for consumer in consumers:
            consumer.close()
        left = wait_for("the group is empty", lambda: (d := describe(cluster, "shop")) and d.state.name == "EMPTY" and d)
        assert left.members == []


def test_cp_64_a_group_sails_through_a_rolling_restart() -> None:
    from confluent_kafka import Consumer

    with running(controllers=1, brokers=3, config={"min.insync.replicas": "2"}) as cluster:
        cluster.create_topic("orders", partitions=2)
        assigned: list[int] = []
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "shop",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 500,
                "log_level": 0,
            }
        )
        consumer.subscribe(["orders"], on_assign=lambda _consumer, partitions: assigned.append(len(partitions)))
        read: list[str] = []

        def poll() -> None:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                read.append(message.value().decode())

        wait_for("it owns both", lambda: poll() or len(consumer.assignment()) == 2)
        sent: list[str] = []
        for broker in cluster.brokers:
            cluster.terminate(broker)
            wait_for(f"{broker} has stopped", lambda b=broker: poll() or cluster.node(b).state == "stopped")
            values = [f"{broker}-{n}" for n in range(20)]
            assert cluster.produce("orders", values, **{"enable.idempotence": True}) == []
            sent += values
            due = len(sent)
            wait_for("they are read", lambda n=due: poll() or len(read) >= n, every_s=0)
            wait_for("it is committed", lambda: committed_by(consumer))
            cluster.restart(broker)

            def whole() -> bool:
                poll()
                found = cluster.partitions("orders")
                return bool(found) and all(len(view.isr) == 3 for view in found.values())

            wait_for(f"{broker} is back", whole)
        assert sorted(read) == sorted(sent), "nothing lost, nothing twice"
        assert assigned == [2], "and not one rebalance"
        consumer.close()
