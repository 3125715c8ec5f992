"""What a metadata image makes the broker do, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.broker.dynamic_configs import DynamicConfigs
from kraftlite.broker.log_dirs import LogDirs
from kraftlite.broker.metadata_cache import MetadataCache
from kraftlite.broker.publisher import BrokerMetadataPublisher
from kraftlite.log.config import LogConfig
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage, MetadataProvenance
from kraftlite.metadata.publisher import Manifest
from kraftlite.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kraftlite.metadata.topics_delta import TopicsDelta
from kraftlite.model.errors import Fault
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import ConfigResourceType
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.model.tuning import Tuning
from kraftlite.runtime.trace import ListTracer
from tests.harness.broker_logs import ORDERS, PAYMENTS, Logs

ME = NodeId(1)


def topic(name: str, topic_id: UUID, *replicas: int, partitions: int = 1) -> list[MetadataRecord]:
    nodes = tuple(NodeId(replica) for replica in replicas)
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            PartitionRecord(
                topic_id=topic_id, partition=index, replicas=nodes, isr=nodes, leader=nodes[0], leader_epoch=0, partition_epoch=0
            )
            for index in range(partitions)
        ),
    ]


def topic_config(name: str, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=name, name=key, value=value)


def broker_config(name: str, key: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=ConfigResourceType.BROKER, resource_name=name, name=key, value=value)


class Replicas:
    """Writes down what it is told. Applies two partitions a step, those of the latest delta first, and raises `error` at the
    partition `fails_at`. `rechecks`: a new image takes a second step."""

    def __init__(self, said: list[str], logs: LogDirs, cache: MetadataCache) -> None:
        self.said = said
        self.logs = logs
        self.cache = cache
        self.configs: list[tuple[str, LogConfig]] = []
        self.broker_values: dict[str, str] = {}
        self.fails_at = ""
        self.elections_left = False
        self.rechecks = False
        self.replicas_of_topic, self.configured = 1, 0
        self.error = ValueError("cannot be applied")

    def start(self) -> None:
        self.said.append(f"start with {len(self.logs.logs())} logs")

    def apply_delta_steps(self, delta: TopicsDelta, image: MetadataImage) -> Iterator[None]:
        self.names = list[str]()
        self.add_delta(delta, image)
        while True:
            now, self.names = self.names[:2], self.names[2:]
            assert self.cache.image is self.image, "the cache shows what is being applied, and nothing later"
            if self.fails_at in now:
                raise self.error
            self.said.append(f"apply leaders={now} at {self.image.offset}")
            if not self.names:
                return
            yield

    def add_delta(self, delta: TopicsDelta, image: MetadataImage) -> None:
        self.image = image
        self.names = [*(str(tp) for tp in delta.local_changes(ME).leaders), *self.names]

    def handle_image_steps(self, image: MetadataImage) -> Iterator[None]:
        self.said.append(f"image {image.offset}")
        if self.rechecks:
            yield
            self.said.append(f"image {image.offset}, rechecked")

    def announce_log_config_steps(self, topic: str, config: LogConfig) -> Iterator[None]:
        self.said.append(f"announce {topic}")
        yield

    def update_log_config_steps(self, topic: str, config: LogConfig) -> Iterator[None]:
        self.said.append(f"configure {topic}")
        self.configs.append((topic, config))
        for _ in range(self.replicas_of_topic):
            self.configured += 1
            yield

    def update_broker_values(self, values: Mapping[str, str]) -> None:
        self.broker_values = dict(values)

    def start_hw_checkpoints(self) -> None:
        self.said.append("hw checkpoints")


class Scene:
    def __init__(self, logs: Logs | None = None) -> None:
        self.said: list[str] = []
        self.configs = DynamicConfigs(ME, {"log.segment.bytes": "1000000", "log.retention.hours": "168"})
        self.logs = logs or Logs()
        self.logs.dirs.read_markers()
        self.cache = MetadataCache("cluster")
        self.replicas = Replicas(self.said, self.logs.dirs, self.cache)
        self.resent = 0
        self.errors: list[Exception] = []
        self.publisher = BrokerMetadataPublisher(
            self.logs.bed.ports,
            ME,
            cache=self.cache,
            configs=self.configs,
            log_dirs=self.logs.dirs,
            replicas=self.replicas,
            on_directories_known=self._resend,
            cordon=lambda _image: None,
            guard=self._guard,
        )
        self.image = MetadataImage.EMPTY
        self.offset = 0

    def _resend(self) -> None:
        self.resent += 1

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except ValueError as error:
            self.errors.append(error)

    @property
    def applying(self) -> bool:
        return any(task.get_name() == "metadata-publish" for task in self.logs.bed.tasks.running)

    async def started(self) -> None:
        """The first update is applied, and forgotten."""
        self.publish(topic("first", UUID(int=8000), 1))
        await self.settle()
        await self.publisher.wait_first_publish()
        self.said.clear()

    def publish(self, *records: MetadataRecord | Sequence[MetadataRecord]) -> None:
        delta = MetadataDelta(self.image)
        for item in records:
            for record in item if isinstance(item, list) else [item]:
                delta.replay(record)  # type: ignore[arg-type]
                self.offset += 1
        provenance = MetadataProvenance(
            last_contained_offset=self.offset, last_contained_epoch=1, last_contained_log_time_ms=0, is_offset_batch_aligned=True
        )
        self.image = delta.apply(provenance)
        self.publisher.on_metadata_update(delta, self.image, Manifest(kind="log", provenance=provenance))

    async def settle(self) -> None:
        await self.logs.bed.clock.run_for(0, settle=60)

    async def turn(self) -> None:
        """Room for one step of an update that is being applied."""
        self.logs.bed.clock.advance(0)
        await self.logs.bed.clock.settle(3)


async def with_logs(*topics: tuple[str, UUID]) -> Logs:
    """A broker that stopped cleanly with these logs."""
    logs = Logs()
    await logs.load()
    for name, topic_id in topics:
        logs.create(TopicPartition(name, 0), "x", topic_id=topic_id)
    await logs.dirs.close(1)
    return logs.restart()


async def test_ml_21_first_image_in_order() -> None:
    scene = Scene(await with_logs(("orders", ORDERS)))
    scene.publish(topic("orders", ORDERS, 1), topic_config("orders", "segment.bytes", "2000"))
    assert scene.said == []
    await scene.settle()
    await scene.publisher.wait_first_publish()
    assert scene.said == [
        "start with 1 logs",
        "announce orders",
        "apply leaders=['orders-0'] at 3",
        "configure orders",
        "image 3",
        "hw checkpoints",
    ]
    assert [event.logs for event in scene.logs.bed.events("broker.first_publish_done")] == [1]


async def test_ml_21_updates_during_recovery_wait_and_keep_their_order() -> None:
    scene = Scene(await with_logs(("orders", ORDERS)))
    recovering = asyncio.Event()
    plain = scene.logs.bed.tasks.run_blocking

    async def slow(function: Any) -> Any:
        await recovering.wait()
        return await plain(function)

    scene.logs.bed.tasks.run_blocking = slow  # type: ignore[method-assign]
    scene.publish(topic("orders", ORDERS, 1))
    await scene.settle()
    scene.publish(topic("payments", PAYMENTS, 1))
    scene.publish(topic_config("payments", "retention.ms", "5"))
    await scene.settle()
    waiting = asyncio.ensure_future(scene.publisher.wait_first_publish())
    await scene.settle()
    assert scene.said == [] and not waiting.done()
    recovering.set()
    await scene.settle()
    assert waiting.done()
    assert [line for line in scene.said if not line.startswith("image")] == [
        "start with 1 logs",
        "apply leaders=['orders-0'] at 2",
        "apply leaders=['payments-0'] at 4",
        "configure payments",
        "hw checkpoints",
    ]
    assert scene.cache.image is scene.image
    scene.publish(topic("later", UUID(int=7000), 1))
    assert scene.said[-2:] == ["apply leaders=['later-0'] at 7", "image 7"]


async def test_ml_21_a_big_update_leaves_the_loop_its_turns_and_later_ones_wait_behind_it() -> None:
    scene = Scene()
    await scene.started()
    scene.publish(topic("big", ORDERS, 1, partitions=5))
    assert scene.said == ["apply leaders=['big-0', 'big-1'] at 8"], "the first step is taken at once"
    big = scene.image
    scene.publish(topic("later", PAYMENTS, 1), topic_config("later", "retention.ms", "5"))
    assert len(scene.said) == 1 and scene.cache.image is big
    turns: list[int] = []
    while scene.cache.image is big and len(turns) < 100:
        turns.append(len(scene.said))
        await scene.turn()
    assert {1, 2} <= set(turns), "the loop had a turn after each step"
    await scene.settle()
    assert scene.said == [
        "apply leaders=['big-0', 'big-1'] at 8",
        "apply leaders=['big-2', 'big-3'] at 8",
        "apply leaders=['big-4'] at 8",
        "image 8",
        "announce later",
        "apply leaders=['later-0'] at 11",
        "configure later",
        "image 11",
    ]
    assert scene.cache.image is scene.image and not scene.applying
    scene.publish(topic("small", UUID(int=7000), 1))
    assert scene.said[-2:] == ["apply leaders=['small-0'] at 13", "image 13"], "at once again"


async def test_ml_21_updates_that_wait_become_one_with_the_one_that_is_being_applied_up_to_a_configuration() -> None:
    """A broker that is behind with five batches of a failover learns what it leads from all of them, and then the rest."""
    scene = Scene()
    await scene.started()
    scene.publish(topic("big", ORDERS, 1, partitions=3))
    scene.publish(topic("one", PAYMENTS, 1))
    scene.publish(topic("two", UUID(int=7000), 1))
    scene.publish(topic("three", UUID(int=7001), 1), topic_config("three", "retention.ms", "5"))
    scene.publish(topic("four", UUID(int=7002), 1))
    await scene.settle()
    assert scene.said == [
        "apply leaders=['big-0', 'big-1'] at 6",
        "apply leaders=['two-0', 'one-0'] at 10",
        "apply leaders=['big-2'] at 10",
        "image 10",
        "announce three",
        "apply leaders=['three-0'] at 13",
        "configure three",
        "image 13",
        "apply leaders=['four-0'] at 15",
        "image 15",
    ]
    assert scene.cache.image is scene.image and scene.publisher.applied_offset(scene.offset) == scene.offset


async def test_ml_21_who_follows_replicas_hears_of_updates_that_became_one_when_all_of_it_is_done() -> None:
    scene = Scene()
    heard: list[tuple[list[str], int]] = []

    class Coordinator:
        def replicas_applied(self, delta: TopicsDelta, image: MetadataImage) -> None:
            heard.append((sorted(it.name for it in delta.changed.values()), image.offset))
            assert scene.said[-1] == "apply leaders=['later-0', 'big-2'] at 8"

        def configs_applied(self, image: MetadataImage) -> None: ...

    await scene.started()
    scene.publisher._coordinators = [Coordinator()]
    scene.publish(topic("big", ORDERS, 1, partitions=3))
    scene.publish(topic("later", PAYMENTS, 1))
    await scene.settle()
    assert heard == [(["big", "later"], 8)] and scene.said[-1] == "image 8"


async def test_ml_21_so_many_updates_become_one_and_the_next_waits_until_they_are_done() -> None:
    """Otherwise the rest of the first would wait for as long as more come."""
    scene = Scene()
    scene.publisher._ports = replace(scene.logs.bed.ports, tuning=Tuning(updates_joined=2))
    await scene.started()
    scene.publish(topic("big", ORDERS, 1, partitions=3))
    scene.publish(topic("one", PAYMENTS, 1))
    scene.publish(topic("two", UUID(int=7000), 1))
    await scene.settle()
    assert [line for line in scene.said if line.startswith("image")] == ["image 8", "image 10"]
    assert scene.said[-2:] == ["apply leaders=['two-0'] at 10", "image 10"]


async def test_ml_21_a_look_at_what_is_led_leaves_the_loop_its_turns_and_the_next_update_waits() -> None:
    scene = Scene()
    await scene.started()
    scene.replicas.rechecks = True
    scene.publish(topic("one", ORDERS, 1))
    scene.publish(topic("two", PAYMENTS, 1))
    assert scene.said == ["apply leaders=['one-0'] at 4", "image 4"]
    assert scene.publisher.applied_offset(scene.offset) == 2
    await scene.settle()
    assert scene.said[2:] == ["image 4, rechecked", "apply leaders=['two-0'] at 6", "image 6", "image 6, rechecked"]
    assert scene.publisher.applied_offset(scene.offset) == scene.offset


async def test_ml_21_a_big_first_update_is_applied_in_full_before_the_broker_is_ready() -> None:
    scene = Scene()
    waiting = asyncio.ensure_future(scene.publisher.wait_first_publish())
    scene.publish(topic("big", ORDERS, 1, partitions=5))
    for _ in range(100):
        await scene.turn()
        if any("big-2" in line for line in scene.said):
            break
    assert not waiting.done() and "hw checkpoints" not in scene.said
    scene.publish(topic("later", PAYMENTS, 1))
    await scene.settle()
    assert waiting.done()
    assert scene.said[-3:] == ["apply leaders=['later-0', 'big-4'] at 8", "image 8", "hw checkpoints"]
    assert scene.cache.image is scene.image


async def test_what_is_not_applied_yet_is_not_reported_as_applied() -> None:
    scene = Scene()
    await scene.started()
    before, told = scene.image.offset, list[int]()
    scene.publisher.on_long_update = lambda: told.append(scene.publisher.applied_offset(scene.image.offset))
    assert scene.publisher.applied_offset(before) == before
    scene.publish(topic("big", ORDERS, 1, partitions=5))
    assert scene.publisher.applied_offset(scene.image.offset) == before
    scene.publish(topic("later", PAYMENTS, 1))
    assert scene.publisher.applied_offset(scene.image.offset) == before
    await scene.settle()
    assert scene.publisher.applied_offset(scene.image.offset) == scene.image.offset == told[-1], "whoever waits is told"


async def test_a_publisher_closed_while_it_applies_stops_there() -> None:
    scene = Scene()
    await scene.started()
    scene.publish(topic("big", ORDERS, 1, partitions=5))
    scene.publish(topic("later", PAYMENTS, 1))
    await scene.turn()
    said = list(scene.said)
    assert scene.applying
    scene.publisher.close()
    await scene.settle()
    assert scene.said == said and "image 8" not in said
    assert not scene.applying and not scene.logs.bed.faults


@pytest.mark.parametrize("fails_at", ["big-0", "big-4"], ids=["at once", "in a later step"])
async def test_ml_07_an_update_that_cannot_be_applied_does_not_stop_the_next(fails_at: str) -> None:
    scene = Scene()
    await scene.started()
    scene.replicas.fails_at = fails_at
    if fails_at == "big-0":
        with pytest.raises(ValueError, match="cannot be applied"):
            scene.publish(topic("big", ORDERS, 1, partitions=5))
    else:
        scene.publish(topic("big", ORDERS, 1, partitions=5))
    scene.publish(topic("later", PAYMENTS, 1))
    await scene.settle()
    assert scene.errors == ([] if fails_at == "big-0" else [scene.replicas.error])
    assert scene.said[-2:] == ["apply leaders=['later-0'] at 10", "image 10"] and "image 8" not in scene.said
    assert not scene.logs.bed.faults


@pytest.mark.parametrize(
    ("records", "kept"),
    [
        (topic("orders", ORDERS, 1, 2), True),
        (topic("orders", ORDERS, 2, 3), False),
        (topic("orders", PAYMENTS, 1), False),
        (topic("renamed", ORDERS, 1), False),
        (topic("payments", PAYMENTS, 1), False),
    ],
    ids=["ours", "replica moved away", "created anew", "another name", "deleted"],
)
async def test_ml_23_the_first_image_says_which_logs_are_strays(records: list[MetadataRecord], kept: bool) -> None:
    scene = Scene(await with_logs(("orders", ORDERS)))
    scene.publish(records)
    await scene.settle()
    assert (scene.logs.dirs.get(TopicPartition("orders", 0)) is not None) is kept
    assert bool(scene.logs.bed.events("broker.stray_log_set_aside")) is not kept


async def test_cb_05_a_value_that_cannot_be_read_is_told_and_the_others_apply() -> None:
    """A metadata log that Apache Kafka wrote may have it: its controllers store what only brokers refuse."""
    scene = Scene()
    tracer = ListTracer()
    scene.configs = scene.publisher._configs = DynamicConfigs(ME, {"log.segment.bytes": "1000000"}, tracer)
    scene.publish(topic("orders", ORDERS, 1))
    await scene.settle()
    applied: list[Mapping[str, str]] = []
    scene.publisher._on_broker_values = applied.append
    scene.publish(broker_config("1", "log.segment.bytes", "many"))
    scene.publish(broker_config("1", "max.connections", "7"))
    scene.publish(broker_config("", "my.plugin", "whatever"))
    assert applied[-1]["max.connections"] == "7" and applied[-1]["log.segment.bytes"] == "1000000"
    assert applied[-1]["my.plugin"] == "whatever"
    assert scene.configs.log_config_for("orders").segment_bytes == 1_000_000
    assert scene.errors == []
    assert {(event.event, event.resource) for event in tracer.events} == {("broker.dynamic_config_ignored", "1")}  # type: ignore[attr-defined]
    assert "log.segment.bytes" in tracer.events[0].reasons[0]  # type: ignore[attr-defined]


async def test_cm_52_configs_reach_the_logs_topic_over_broker_over_cluster_over_file() -> None:
    scene = Scene()
    scene.publish(topic("orders", ORDERS, 1))
    await scene.settle()
    assert scene.configs.log_config_for("orders").segment_bytes == 1_000_000

    def segment_bytes() -> int:
        name, config = scene.replicas.configs[-1]
        assert name == "orders"
        return config.segment_bytes

    scene.logs.create(TopicPartition("orders", 0), topic_id=ORDERS)
    scene.publish(broker_config("", "log.segment.bytes", "900000"))
    assert segment_bytes() == 900_000
    scene.publish(broker_config("1", "log.segment.bytes", "800000"))
    assert segment_bytes() == 800_000
    assert scene.replicas.broker_values["log.segment.bytes"] == "800000"
    scene.publish(topic_config("orders", "segment.bytes", "700000"))
    assert segment_bytes() == 700_000
    scene.publish(topic_config("orders", "segment.bytes", None))
    assert segment_bytes() == 800_000
    count = len(scene.replicas.configs)
    scene.publish(broker_config("2", "log.segment.bytes", "600000"))
    assert len(scene.replicas.configs) == count, "another broker's"


def registered(*, fenced: bool = True) -> RegisterBrokerRecord:
    nothing: dict[str, Any] = {"listeners": (), "features": (), "rack": None, "log_dirs": (), "in_controlled_shutdown": False}
    return RegisterBrokerRecord(broker_id=ME, incarnation_id=UUID(int=9), broker_epoch=1, fenced=fenced, **nothing)


async def test_ml_25_a_registration_without_directories_is_sent_again() -> None:
    scene = Scene()
    scene.publish(FeatureLevelRecord(name="metadata.version", level=14), registered())
    await scene.settle()
    assert scene.resent == 0
    scene.publish(FeatureLevelRecord(name="metadata.version", level=17))
    assert scene.resent == 1


async def test_a_closed_publisher_lets_nobody_wait() -> None:
    scene = Scene()
    waiting = asyncio.ensure_future(scene.publisher.wait_first_publish())
    await scene.settle()
    scene.replicas.elections_left = True
    assert scene.publisher.elections_left()
    scene.publisher.close()
    assert not scene.publisher.elections_left(), "metadata does not wait for leaders that will never lead"
    with pytest.raises(Fault, match="stopped"):
        await waiting
    scene.publish(topic("orders", ORDERS, 1))
    await scene.settle()
    assert scene.said == []
