"""What happens under a stream: the stories of `compare_connector`. Each format has topics of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.spark.compare_reads import Case, at
from tests.spark.compare_sides import FORMATS, Outcome, Stream, World, attempt

Story = Callable[[World, str, str], Any]
QUICK = {"kafkaConsumer.pollTimeoutMs": 3000, "fetchOffset.retryIntervalMs": 100}


def story(tell: Story, *words: str, name: str = "") -> Case:
    title = name or tell.__name__.strip("_").replace("_", " ")

    def run(world: World, form: str) -> Outcome:
        topic = f"{title.replace(' ', '-').replace('=', '-').replace(',', '')}-{form}"
        return attempt(lambda: tell(world, form, topic), *words)

    return Case(f"story: {title}", run)


def from_start(world: World, form: str, topic: str, **options: Any) -> Stream:
    return Stream(world, form, {"subscribe": topic, "startingOffsets": "earliest", **QUICK, **options})


def _restart(world: World, form: str, topic: str) -> Any:
    world.topic(topic, 2)
    world.fill(topic, 0, 5)
    query = from_start(world, form, topic, maxOffsetsPerTrigger=3).run()
    world.fill(topic, 1, 4, first=10)
    query.run()
    return query.run().values(), [sum(it.values()) for it in query.sizes()]


def _restart_with_other_starting_offsets(world: World, form: str, topic: str) -> Any:
    world.topic(topic)
    world.fill(topic, 0, 5)
    query = from_start(world, form, topic).run()
    world.fill(topic, 0, 2, first=5)
    return query.run(startingOffsets=at(topic, 1)).values()


def _checkpoint_of_the_other_format(world: World, form: str, topic: str) -> Any:
    world.topic(topic, 2)
    world.fill(topic, 0, 5)
    query = from_start(world, form, topic, maxOffsetsPerTrigger=2).run()
    world.fill(topic, 1, 4, first=10)
    query.form = next(it for it in FORMATS if it != form)
    return query.run().values()


def _latest_and_then(world: World, form: str, topic: str) -> Any:
    world.topic(topic)
    world.fill(topic, 0, 5)
    query = Stream(world, form, {"subscribe": topic, **QUICK}).run()
    world.fill(topic, 0, 2, first=5)
    return query.run().values()


def _new_partitions(world: World, form: str, topic: str) -> Any:
    world.topic(topic)
    world.fill(topic, 0, 5)
    query = from_start(world, form, topic).run()
    world.grow(topic, 3)
    world.fill(topic, 2, 4, first=10)
    world.fill(topic, 0, 1, first=5)
    return query.run(maxOffsetsPerTrigger=2).values(), query.sizes()


def _new_partitions_while_it_runs(world: World, form: str, topic: str) -> Any:
    world.topic(topic)
    world.fill(topic, 0, 5)
    query = from_start(world, form, topic)
    running = query.start(available_now=False)
    try:
        world.until("five", lambda: len(query.values()) == 5)
        world.grow(topic, 2)
        world.fill(topic, 1, 4, first=10)
        world.until("nine", lambda: len(query.values()) == 9 or running.exception() is not None)
    finally:
        running.stop()
    if running.exception() is not None:
        raise running.exception()
    return query.values()


def _new_partition_that_was_cut(world: World, form: str, topic: str, lossy: str) -> Any:
    world.topic(topic)
    world.fill(topic, 0, 5)
    query = from_start(world, form, topic, failOnDataLoss=lossy).run()
    world.grow(topic, 2)
    world.fill(topic, 1, 30, first=10)
    world.truncate(topic, 1, 20)
    query.run(maxOffsetsPerTrigger=4)
    return query.values(), query.sizes()


def _waits_for_enough(world: World, form: str, topic: str, delay: str) -> Any:
    """The first batch does not wait; then three records are not enough, five are, and the delay makes do with one."""
    world.topic(topic)
    world.fill(topic, 0, 5)
    query = from_start(world, form, topic, minOffsetsPerTrigger=4, maxTriggerDelay=delay)
    running = query.start(available_now=False)
    try:
        running.processAllAvailable()
        world.fill(topic, 0, 3, first=5)
        if delay == "1h":
            running.processAllAvailable()
            world.fill(topic, 0, 2, first=8)
        world.until("the rest", lambda: len(query.values()) == (10 if delay == "1h" else 8))
    finally:
        running.stop()
    return query.sizes()


def _a_topic_of_the_pattern_comes(world: World, form: str, topic: str) -> Any:
    world.topic(f"{topic}-1")
    world.fill(f"{topic}-1", 0, 3)
    options = {"subscribePattern": f"{topic}-.*", "startingOffsets": "earliest", **QUICK}
    query = Stream(world, form, options).run()
    world.topic(f"{topic}-2")
    world.fill(f"{topic}-2", 0, 3, first=10)
    return query.run().values()


def _truncated(world: World, form: str, topic: str, lossy: str) -> Any:
    world.topic(topic)
    world.fill(topic, 0, 5)
    query = from_start(world, form, topic, failOnDataLoss=lossy).run()
    world.fill(topic, 0, 10, first=5)
    world.truncate(topic, 0, 12)
    return query.run().values()


def _deleted(world: World, form: str, topic: str, lossy: str, *, pattern: bool = False) -> Any:
    """With another topic beside it, which is read on where that is possible."""
    for name in (f"{topic}-1", f"{topic}-2"):
        world.topic(name)
        world.fill(name, 0, 3)
    own = {"subscribePattern": f"{topic}-.*"} if pattern else {"subscribe": f"{topic}-1,{topic}-2"}
    query = Stream(world, form, {**own, "startingOffsets": "earliest", "failOnDataLoss": lossy, **QUICK}).run()
    world.delete(f"{topic}-1")
    world.fill(f"{topic}-2", 0, 2, first=10)
    return query.run().values()


def _deleted_while_it_runs(world: World, form: str, topic: str, lossy: str) -> Any:
    for name in (f"{topic}-1", f"{topic}-2"):
        world.topic(name)
        world.fill(name, 0, 3)
    options = {"subscribePattern": f"{topic}-.*", "startingOffsets": "earliest", "failOnDataLoss": lossy, **QUICK}
    query = Stream(world, form, options)
    running = query.start(available_now=False)
    try:
        world.until("six", lambda: len(query.values()) == 6)
        world.delete(f"{topic}-1")
        world.fill(f"{topic}-2", 0, 2, first=10)
        world.until("the rest", lambda: len(query.values()) == 8 or running.exception() is not None)
        if lossy == "true":
            world.until("it fails", lambda: running.exception() is not None)
    finally:
        running.stop()
    if running.exception() is not None:
        raise running.exception()
    return query.values()


def _made_again(world: World, form: str, topic: str, lossy: str, *, more: int) -> Any:
    """Deleted and made again between two runs, with fewer, as many or more records than were read."""
    world.topic(topic)
    world.fill(topic, 0, 5)
    query = from_start(world, form, topic, failOnDataLoss=lossy).run()
    world.delete(topic)
    world.topic(topic)
    world.fill(topic, 0, 5 + more, first=50)
    query.run()
    world.fill(topic, 0, 1, first=90)
    return query.run().values()


def _made_again_while_it_runs(world: World, form: str, topic: str, lossy: str) -> Any:
    """With more records than were read, and between two triggers: they come at multiples of their interval."""
    world.topic(topic)
    world.fill(topic, 0, 5)
    query = from_start(world, form, topic, failOnDataLoss=lossy)
    running = query.start(available_now=False, interval="3 seconds")
    try:
        world.until("five", lambda: len(query.values()) == 5)
        world.until("a trigger has just been", lambda: 0.3 < time.time() % 3 < 0.8)
        world.delete(topic)
        world.topic(topic)
        world.fill(topic, 0, 9, first=50)
        world.until("the last", lambda: b"v58" in query.values() or running.exception() is not None)
    finally:
        running.stop()
    if running.exception() is not None:
        raise running.exception()
    return query.values()


def stories() -> Iterator[Case]:
    plain = (_restart, _restart_with_other_starting_offsets, _latest_and_then, _new_partitions, _new_partitions_while_it_runs)
    others = (_a_topic_of_the_pattern_comes, _checkpoint_of_the_other_format)
    yield from (story(tell) for tell in (*plain, *others))
    for delay in ("1h", "900ms"):
        yield story(
            lambda world, form, topic, delay=delay: _waits_for_enough(world, form, topic, delay), name=f"waits at most {delay}"
        )
    for lossy in ("true", "false"):
        said = f"failOnDataLoss={lossy}"

        def with_loss(tell: Callable[..., Any], name: str, lossy: str = lossy, said: str = said, **more: Any) -> Case:
            return story(lambda world, form, topic: tell(world, form, topic, lossy, **more), name=f"{name}, {said}")

        yield with_loss(_new_partition_that_was_cut, "new partition that was cut")
        yield with_loss(_truncated, "truncated between runs")
        yield with_loss(_deleted, "topic deleted")
        yield with_loss(_deleted, "topic of a pattern deleted", pattern=True)
        yield with_loss(_deleted_while_it_runs, "topic deleted while it runs")
        yield with_loss(_made_again_while_it_runs, "made again while it runs")
        for more, word in ((-3, "fewer"), (0, "as many"), (3, "more")):
            yield with_loss(_made_again, f"made again with {word} records", more=more)


def cases() -> Iterator[Case]:
    yield from stories()
