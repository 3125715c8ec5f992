"""A simulated client that is wrong or late: malformed batches, impossible offsets and partitions, zombies, requests sent again.

Each thing that it does is written down with what came of it; `checkers/h_strangers.py` says which answers nobody deserves. It has
a random stream of its own, and a seed either has a stranger or is what it would be without.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraftlite.log.batch import MAX_SEQUENCE, Record, build_batch
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import CERTAIN, REQUEST_TIMEOUT_MS, SimClient
from kraftlite.sim.history import History, Produce, Strange, Verdict
from kraftlite.sim.malformed import malformed
from kraftlite.sim.service import FETCH, OFFSETS, PRODUCE, PRODUCER_ID, FetchAsk, OffsetAsk, ProduceAsk, ProducerIdAsk

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 90
"""Behind the numbers of the producers and the consumers."""
ONE_SEED_IN: Final = 3
LATE_US: Final = 3_000_000
TIMEOUTS_MS: Final = (0, -1, 1, 2**31 - 1, -(2**31))
OFFSETS_BEYOND: Final = (-1, -2, -(2**63), 2**40, 2**62, 2**63 - 1)
NO_PARTITION: Final = 1000
EPOCHS: Final = (0, 2**31 - 1)
ZOMBIE: Final = "zombie of a producer"
ZOMBIE_VALUE: Final = "zombie"
GAP: Final = "first batch of an epoch that does not begin at 0"
OVERLAP: Final = "batch that ends with the sequence of another one, and begins before it"
MAYBE: Final = frozenset({ZOMBIE, GAP, OVERLAP})
"""Welcome where the leader may have forgotten the producer."""


def comes_with(seed: int) -> bool:
    return random.Random(f"stranger/{seed}").randrange(ONE_SEED_IN) == 0


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.seed):
        it = SimStranger(cluster, history)
        yield it, it.run(partitions, it.rng.choice((100_000, 400_000)))


class SimStranger(SimClient):
    """Does one odd thing after the other. What it writes properly is in the history as anybody's; what it must not get is not."""

    def __init__(self, cluster: SimCluster, history: History) -> None:
        super().__init__(cluster, NUMBER, "stranger", history)
        self._numbers: dict[TopicPartition, int] = {}
        more = random.Random(f"stranger/sequences/{cluster.seed}")
        self._goes_on = more if more.randrange(2) == 0 else None

    async def run(self, partitions: Sequence[TopicPartition], mean_gap_us: int) -> None:
        acts: list[Callable[[TopicPartition, NodeId], Awaitable[None]]] = [
            *(self._malformed, self._malformed, self._odd_fetch, self._other_epoch, self._nowhere, self._bad_acks),
            *(self._send_again, self._zombie, self._odd_timeout),
        ]
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * mean_gap_us))
            tp = partitions[self.rng.randrange(len(partitions))]
            leader = await self.leader(tp)
            if leader is None:
                continue
            act = acts[self.rng.randrange(len(acts))]
            await act(tp, leader)

    async def _late(self) -> None:
        """A third of the time what is meant for a leader comes when it may lead no longer."""
        if self.rng.randrange(3) == 0:
            await self.pause(self.rng.randint(1, LATE_US))

    async def _ask(self, kind: str, tp: TopicPartition, leader: NodeId, method: Any, ask: Any) -> Any:
        """The answer; None when there is none. What was asked is written down with the error that it got."""
        strange = Strange(client=self.name, kind=kind, tp=tp, topic_id=self.topic_id(tp), broker=leader, invoked_us=self.now_us())
        self.history.strange.append(strange)
        result = None
        try:
            result = await self.call(leader, method, ask)
        except TransportError as error:
            strange.error = str(error) or "TRANSPORT"
        except ApiError as error:
            strange.error = error.code.name
        else:
            strange.error = ErrorCode(result.error).name
            strange.offset = int(getattr(result, "base_offset", -1))
        strange.returned_us = self.now_us()
        return result

    def _value(self, tp: TopicPartition) -> int:
        number = self._numbers.get(tp, 0)
        self._numbers[tp] = number + 1
        return number

    # --- what it does

    async def _malformed(self, tp: TopicPartition, leader: NodeId) -> None:
        kind, batch = malformed(self.rng, b"malformed", self.cluster.wall_ms())
        await self._late()
        ask = ProduceAsk(tp, self.rng.choice((-1, 1)), REQUEST_TIMEOUT_MS // 2, batch)
        await self._ask(f"malformed batch: {kind}", tp, leader, PRODUCE, ask)

    async def _odd_fetch(self, tp: TopicPartition, leader: NodeId) -> None:
        offset = self.rng.choice(OFFSETS_BEYOND)
        ask = FetchAsk(tp, offset, self.rng.choice((None, self.leader_epoch(tp))), self.rng.choice((0, 2**31 - 1)), 1 << 20)
        await self._ask(f"fetch at offset {offset}", tp, leader, FETCH, ask)

    async def _other_epoch(self, tp: TopicPartition, leader: NodeId) -> None:
        """Ask with another leader epoch; the checker of leader epochs knows the right answer."""
        known = self.leader_epoch(tp) or 0
        epoch = self.rng.choice((*EPOCHS, known - 1, known, known + 1))
        await self._late()
        if epoch >= 0:
            await self._ask("fetch in another epoch", tp, leader, FETCH, FetchAsk(tp, 0, epoch, 0, 300))

    async def _nowhere(self, tp: TopicPartition, leader: NodeId) -> None:
        missing = TopicPartition(self.rng.choice((tp.topic, "no-such-topic")), NO_PARTITION)
        batch = bytes(build_batch([Record(key=None, value=b"nowhere")], timestamp_ms=self.cluster.wall_ms()))
        method, ask = self.rng.choice(
            (
                (PRODUCE, ProduceAsk(missing, -1, 1000, batch)),
                (FETCH, FetchAsk(missing, 0, None, 0, 1000)),
                (OFFSETS, OffsetAsk(missing, self.rng.choice((-1, -2, -3, 0, 2**63 - 1)))),
            )
        )
        await self._ask("partition that is not there", missing, leader, method, ask)

    async def _bad_acks(self, tp: TopicPartition, leader: NodeId) -> None:
        batch = bytes(build_batch([Record(key=None, value=b"bad acks")], timestamp_ms=self.cluster.wall_ms()))
        acks = self.rng.choice((2, -2, 32767, -32768))
        await self._ask("acks that are not there", tp, leader, PRODUCE, ProduceAsk(tp, acks, 1000, batch))

    async def _odd_timeout(self, tp: TopicPartition, leader: NodeId) -> None:
        """A sound record; what came of it is judged as any other's."""
        await self._write(tp, leader, self.rng.choice(TIMEOUTS_MS))

    async def _send_again(self, tp: TopicPartition, leader: NodeId) -> None:
        """A batch that another producer had acknowledged some time ago, byte for byte, to who leads now."""
        known = [it for it in self.history.acknowledged if it[0] == tp]
        if not known:
            return
        _tp, batch, offset = known[self.rng.randrange(len(known))]
        await self._late()
        await self._ask(f"sent again, first at {offset}", tp, leader, PRODUCE, ProduceAsk(tp, -1, REQUEST_TIMEOUT_MS // 2, batch))

    async def _zombie(self, tp: TopicPartition, leader: NodeId) -> None:
        """The later epoch of a producer id writes first, then the one that it replaced; or it goes on as nobody may (LG-17)."""
        try:
            identity = await self.call(leader, PRODUCER_ID, ProducerIdAsk())
        except (TransportError, ApiError):
            return
        if await self._write(tp, leader, 1000, producer_id=identity.producer_id, producer_epoch=1) is not Verdict.OK:
            return
        await self._late()
        kind, epoch, sequence, count = ZOMBIE, 0, 0, 1
        if self._goes_on is not None:
            odd = ((GAP, 2, 1 + self._goes_on.randrange(9), 1), (OVERLAP, 1, MAX_SEQUENCE, 2))
            kind, epoch, sequence, count = self._goes_on.choice(((kind, epoch, sequence, count), *odd))
        batch = bytes(
            build_batch(
                [Record(key=None, value=ZOMBIE_VALUE.encode())] * count,
                timestamp_ms=self.cluster.wall_ms(),
                producer_id=identity.producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
        )
        await self._ask(kind, tp, leader, PRODUCE, ProduceAsk(tp, -1, 1000, batch))

    async def _write(
        self, tp: TopicPartition, leader: NodeId, timeout_ms: int, *, producer_id: int = -1, producer_epoch: int = -1
    ) -> Verdict:
        sequence = 0 if producer_id >= 0 else -1
        it = Produce(
            client=self.name,
            tp=tp,
            topic_id=self.topic_id(tp),
            number=self._value(tp),
            acks=-1,
            idempotent=False,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            sequence=sequence,
            invoked_us=self.now_us(),
            attempts=1,
        )
        self.history.produces.append(it)
        batch = build_batch(
            [Record(key=None, value=it.value.encode())],
            timestamp_ms=self.cluster.wall_ms(),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        it.verdict = Verdict.UNKNOWN
        try:
            result = await self.call(leader, PRODUCE, ProduceAsk(tp, -1, timeout_ms, bytes(batch)))
        except TransportError as error:
            it.error = str(error) or "TRANSPORT"
        except ApiError as error:
            it.error = error.code.name
        else:
            code = ErrorCode(result.error)
            it.error = None if code is ErrorCode.NONE else code.name
            if code is ErrorCode.NONE:
                it.verdict, it.offset = Verdict.OK, result.base_offset
            elif code in CERTAIN:
                it.verdict = Verdict.FAILED
        it.returned_us = self.now_us()
        return it.verdict
