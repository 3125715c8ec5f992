"""A change of configurations that concerns every log is applied in steps."""

from __future__ import annotations

import itertools
from uuid import UUID

from kraftlite.model.tuning import Tuning
from tests.spec.broker.test_publisher import Scene, broker_config, topic, with_logs


async def test_ml_21_a_default_of_all_topics_leaves_the_loop_its_turns() -> None:
    """A change of the broker's own configs concerns every log: each step is of as many logs as a step of any other update."""
    names = [f"t{number:02}" for number in range(40)]
    scene = Scene(await with_logs(*((name, UUID(int=100 + number)) for number, name in enumerate(names))))
    scene.publish(*(topic(name, UUID(int=100 + number), 1) for number, name in enumerate(names)))
    await scene.settle()
    await scene.publisher.wait_first_publish()
    scene.said.clear()
    scene.publish(broker_config("", "log.segment.bytes", "900000"))
    step = Tuning().partitions_per_step
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
