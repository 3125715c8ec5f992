"""A change of configurations that concerns every log is applied in steps; and when clients may come."""

from __future__ import annotations

import asyncio
import itertools
from uuid import UUID

import pytest

from kraftlite.metadata.records import BrokerRegistrationChangeRecord, FeatureLevelRecord
from kraftlite.model.errors import Fault
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.model.tuning import Tuning
from tests.spec.broker.test_publisher import ME, ORDERS, Scene, broker_config, registered, topic, topic_config, with_logs


async def test_ml_21_a_default_of_all_topics_leaves_the_loop_its_turns() -> None:
    """A change of the broker's own configs concerns every log: each step is of so many topics and replicas."""
    names = [f"t{number:02}" for number in range(40)]
    scene = Scene(await with_logs(*((name, UUID(int=100 + number)) for number, name in enumerate(names))))
    scene.publish(*(topic(name, UUID(int=100 + number), 1) for number, name in enumerate(names)))
    await scene.settle()
    await scene.publisher.wait_first_publish()
    scene.said.clear()
    scene.publish(broker_config("", "log.segment.bytes", "900000"))
    step = Tuning().partitions_per_step // 2
    assert scene.said == [f"configure {name}" for name in names[:step]], "the first step is taken at once"
    scene.publish(broker_config("", "log.segment.bytes", "800000"))
    steps = [len(scene.said)]
    for _ in range(100):
        if not scene.applying:
            break
        await scene.turn()
        steps.append(len(scene.said))
    assert max(after - before for before, after in itertools.pairwise(steps)) <= step + 1
    told = [line.removeprefix("configure ") for line in scene.said if line.startswith("configure")]
    assert told == [*names, *names], "the next update waits behind it"
    assert {config.segment_bytes for _, config in scene.replicas.configs[-len(names) :]} == {800_000}


async def test_bl_07_clients_are_let_in_when_the_own_metadata_shows_the_broker_unfenced() -> None:
    scene = Scene()
    scene.publish(registered())
    await scene.settle()
    waiting = asyncio.ensure_future(scene.publisher.wait_live())
    scene.publish(topic("orders", ORDERS, 1))
    await scene.settle()
    assert not waiting.done(), "a client would be told that the cluster has no brokers"
    scene.publish(BrokerRegistrationChangeRecord(broker_id=ME, broker_epoch=1, fenced=False))
    await scene.settle()
    assert waiting.done() and waiting.exception() is None
    await scene.publisher.wait_live()


async def test_bl_07_a_broker_that_stops_waits_no_longer_for_being_unfenced() -> None:
    scene = Scene()
    scene.publish(registered())
    await scene.settle()
    waiting = asyncio.ensure_future(scene.publisher.wait_live())
    await scene.settle()
    scene.publisher.close()
    with pytest.raises(Fault, match="unfenced"):
        await waiting


@pytest.mark.parametrize("of_broker", [False, True])
async def test_cm_52_the_configs_of_one_large_topic_are_told_in_steps(of_broker: bool) -> None:
    scene = Scene()
    scene.publish(topic("orders", ORDERS, 1))
    await scene.settle()
    scene.logs.create(TopicPartition("orders", 0), topic_id=ORDERS)
    scene.replicas.replicas_of_topic = 100
    key = "log.retention.ms" if of_broker else "retention.ms"
    scene.publish(broker_config("", key, "5000") if of_broker else topic_config("orders", key, "5000"))
    assert 0 < scene.replicas.configured <= Tuning().partitions_per_step
    await scene.settle()
    assert scene.replicas.configured == 100


async def test_ml_25_directories_that_come_while_a_big_update_is_applied_are_heard_of() -> None:
    """Both become one, and the first of them says nothing of levels."""
    scene = Scene()
    scene.publish(FeatureLevelRecord(name="metadata.version", level=14), registered())
    await scene.started()
    scene.publish(topic("big", ORDERS, 1, partitions=5))
    scene.publish(FeatureLevelRecord(name="metadata.version", level=17), topic("one", UUID(int=7000), 1))
    assert scene.applying and scene.resent == 0
    await scene.settle()
    assert not scene.applying and scene.resent == 1
