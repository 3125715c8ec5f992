"""An administrator who mostly asks, in half of the seeds of the theme `admin`, with a random stream of its own.

It asks each broker for its own configs, for the defaults of all and for its loggers, and for topics that are not there, and sets
configs of brokers that have to agree with others. Checkers i50 and i53 judge what it hears, as they do of `admin`.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.broker.handlers.configs import ConfigQuery
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import ConfigChange, ConfigResourceChange, IncrementalAlterConfigsRequest
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.services.admin import DescribeAsk
from kraftlite.sim.workloads.admin import SimOperator
from kraftlite.sim.workloads.admin_configs import BROKER, GROUP, LOGGER, METRICS, TOPIC
from kraftlite.sim.workloads.admin_topics import NAMES, timeout_ms
from kraftlite.sim.workloads.admin_values import INTERVALS, UNKNOWN_KEY

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 382
ONE_SEED_IN: Final = 2
MEAN_GAP_US: Final = 200_000


def comes_with(seed: int) -> bool:
    return random.Random(f"questions/{seed}").randrange(ONE_SEED_IN) == 0


def visit(
    cluster: SimCluster, history: History, _partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.seed):
        it = Questioner(cluster, history, NUMBER, "questioner")
        yield it, it.run(MEAN_GAP_US)


class Questioner(SimOperator):
    """One request in four is a change; all others are questions."""

    async def _act(self) -> None:
        if self.rng.randrange(4):
            await self._describe()
        else:
            await self._set_interval()

    async def _set_interval(self) -> None:
        """Or a key that nobody knows, which any broker takes, and shows to nobody. A default that does not fit is refused only by
        a broker without a value of its own, as in Kafka."""
        rng, broker = self.rng, self.some_broker()
        key, known = rng.choice(sorted(INTERVALS.items()))
        name = rng.choice(("", str(broker)))
        value = rng.choice((*known.good, *(known.bad if name else ())))
        if rng.randrange(4) == 0:
            key, value = UNKNOWN_KEY, str(rng.randrange(3))
        change = ConfigChange(name=key, op=0 if rng.randrange(5) else 1, value=value)
        resource = ConfigResourceChange(resource_type=BROKER, resource_name=name, changes=(change,))
        request = IncrementalAlterConfigsRequest(
            resources=(resource,), validate_only=rng.randrange(4) == 0, timeout_ms=timeout_ms(rng)
        )
        await self.send("alter_configs", request, broker)

    def _question(self, broker: NodeId) -> DescribeAsk:
        rng = self.rng
        names = (*NAMES, *(it.name for it in self.sight.shape), "never-there")
        what = rng.randrange(8)
        if what < 4:
            kind, name = rng.choice(
                (
                    *((BROKER, ""), (BROKER, str(broker)), (LOGGER, str(broker)), (GROUP, "zg1"), (METRICS, "zm1")),
                    *((TOPIC, rng.choice(names)),) * 2,
                )
            )
            keys = rng.choice((None, None, (*INTERVALS, UNKNOWN_KEY)))
            return DescribeAsk("configs", ConfigQuery(resource_type=kind, resource_name=name, keys=keys))
        if what == 4:
            return DescribeAsk("lookup", self._lookup(names))
        if what == 5:
            return DescribeAsk(rng.choice(("quotas", "strict quotas")), self._filters())
        if what == 6:
            return DescribeAsk("topics", ())
        return DescribeAsk("metadata", rng.randrange(2) == 0)
