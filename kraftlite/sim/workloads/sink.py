"""Queries that write exactly once, as the sink of Spark does: tasks stage, a driver decides, ends and heals, and any of them dies
or stands still at any call.

The protocol is production's (`kraftlite/exactly_once`): its functions, and its readers of the state topic. A driver that stands
still goes on later, beside the next one. What its tasks write has the same values in each run of a batch, up to what tells one
attempt from another (behind a #).

Source: SX-01 to SX-04; docs/spec/spark-sink.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from kraftlite.client.errors import ClientError
from kraftlite.client.settings import ClientSettings
from kraftlite.exactly_once import protocol_core
from kraftlite.exactly_once.protocol_core import CommitFailed, SplitChanged, Staging
from kraftlite.exactly_once.reading import DecisionReader, StateLost, fate_of, is_decided
from kraftlite.exactly_once.records import DECISIONS_PARTITION, Decision, Entry, Marker, encode, marker_partition
from kraftlite.log.batch import iter_batches
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.method import Method
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol.record_requests import EARLIEST, LATEST, Fetched, OffsetAt
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.history import History
from kraftlite.sim.service import FETCH, FetchAsk
from kraftlite.sim.services.groups import Told
from kraftlite.sim.services.logs import LIST, ListAsk
from kraftlite.sim.services.transactions import END, FIND, EndAsk, FindAsk
from kraftlite.sim.shape import TopicPlan
from kraftlite.sim.workloads.sink_steps import Call, carried_out
from kraftlite.sim.workloads.transaction_client import ASK_MS, TransactionClient
from kraftlite.sim.workloads.transaction_instance import FATAL, Aborting, Ended, Instance
from kraftlite.sim.workloads.transactions import CommittedReader, TopicMaker
from kraftlite.sim.workloads.transactions_history import Outcome, Sunk, Tried

if TYPE_CHECKING:
    from kraftlite.client.kafka_client import KafkaClient
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 350
"""The first client of this workload, behind those of all others."""
OUTPUT: Final = "sink-out"
STATE: Final = "sink-state"
STATE_PARTITIONS: Final = 3
PREFIX: Final = "p"
CLEANED: Final = {"segment.bytes": "1500", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
"""A state topic of which the cleaner takes what is old within a run: what tasks staged and what was decided, and their ends."""
LAST_CALLS: Final = 14
"""A run of a batch makes about as many calls, the longest ones more."""
REDEALS_ONE_IN: Final = 3
"""In one of so many queries somebody changes options that decide which rows each task has, between two runs of a batch."""
FINISH_US: Final = 30_000_000
"""The time that a query has for its last batch when all is well again."""


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[TransactionClient | TopicMaker, Coroutine[None, None, None]]]:
    rng = random.Random(f"sink/visit/{cluster.seed}")
    most = min(3, len(cluster.brokers))
    config = {"min.insync.replicas": str(min(2, most))}
    state = {**config, "cleanup.policy": rng.choice(("compact", "delete"))}
    if state["cleanup.policy"] == "compact" and rng.randrange(2):
        state |= CLEANED
    output = TopicPlan(name=OUTPUT, partitions=rng.choice((1, 2, 3)), replication=most, config=config)
    outputs = [TopicPartition(OUTPUT, index) for index in range(output.partitions)]
    admin = SinkTopics(cluster, NUMBER, "sink-admin", history)
    yield admin, admin.run([output, TopicPlan(name=STATE, partitions=STATE_PARTITIONS, replication=most, config=state)])
    for index in range(rng.choice((1, 1, 2))):
        query = Query(cluster, NUMBER + 1 + index, f"sink-{index}", history)
        yield query, query.run(outputs)
    reader = CommittedReader(cluster, NUMBER + 10, "sink-reader", history)
    yield reader, reader.run(outputs)


class SinkTopics(TopicMaker):
    """Creates the two topics, and lets them be. What is in the second one is judged by those who read it."""

    async def run(self, topics: Sequence[TopicPlan], compacted: Sequence[TopicPlan] = ()) -> None:
        output, state = topics
        await self._create([state])
        known = self.history.transactions.topics
        if state.name in known:
            known.remove(state.name)
            await self._create([output])


class Query(TransactionClient):
    """One query with all that it consists of: drivers, and the attempts of its tasks."""

    def __init__(self, cluster: SimCluster, number: int, name: str, history: History) -> None:
        super().__init__(cluster, number, name, history)
        self.timeout_ms = self.rng.choice((1_000, 3_000, 20_000))
        self.sunk = Sunk(query=name, topic=OUTPUT)
        self._options = random.Random(f"sink/options/{cluster.seed}/{name}")
        self._redeals = self._options.randrange(REDEALS_ONE_IN) == 0
        self._otherwise = False
        """The rows are dealt to tasks in the second way."""
        self.dealt: dict[int, set[bool]] = {}
        """Batch → the ways in which runs of it have dealt its rows."""
        self._coordinators: dict[str, NodeId] = {}
        self._attempts = 0

    async def ask_coordinator(self, transactional_id: str, method: Method[Any, Told], ask: Any) -> Told | None:
        """One attempt, at the coordinator of this id: each of the query's ids has its own."""
        broker = self._coordinators.get(transactional_id)
        try:
            if broker is None:
                brokers = [node.node_id for node in self.cluster.brokers]
                any_broker = brokers[self.rng.randrange(len(brokers))]
                found = await self.call(any_broker, FIND, FindAsk(transactional_id), ASK_MS)
                if found.error is not ErrorCode.NONE:
                    return Told(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                broker = self._coordinators[transactional_id] = found.result.broker_id
            told = await self.call(broker, method, ask, ASK_MS)
        except (TransportError, ApiError):
            self._coordinators.pop(transactional_id, None)
            return None
        if told.error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinators.pop(transactional_id, None)
        return told

    def split(self, batch: int) -> list[list[str]]:
        """The rows of each task: the same rows whenever the batch runs, and as long as nobody changes options the same tasks."""
        rng = random.Random(f"sink/rows/{self.cluster.seed}/{self.name}/{batch}")
        counts = [rng.choice((0, 1, 2, 3)) for _ in range(rng.choice((1, 2, 3)))]
        split = [[f"{self.name}/{batch}/{task}/{at}" for at in range(count)] for task, count in enumerate(counts)]
        if not self._otherwise:
            return split
        rows, tasks = [row for part in split for row in part], len(split) + 1
        return [rows[task::tasks] for task in range(tasks)]

    def next_run(self, batch: int, outputs: Sequence[TopicPartition], last: int | None) -> Run:
        """Begin to run a batch; one that runs again, in half of the cases with other options, if somebody changes them at all."""
        if self._redeals and batch in self.dealt and self._options.randrange(2):
            self._otherwise = not self._otherwise
        self.dealt.setdefault(batch, set()).add(self._otherwise)
        return Run(self, batch, outputs, last)

    def options_refused(self, run: Run) -> None:
        """The batch is written in part with other options than those of this run: whoever changed them goes back."""
        self._otherwise = not run.otherwise

    @property
    def otherwise(self) -> bool:
        return self._otherwise

    async def run(self, outputs: Sequence[TopicPartition]) -> None:
        while OUTPUT not in self.history.transactions.topics:
            if self.stopping:
                return
            await self.pause(100_000)
        self.history.transactions.sunk.append(self.sunk)
        zombies: list[asyncio.Task[bool]] = []
        batch = 0
        while not self.stopping:
            self.sunk.rows[batch] = [row for rows in self.split(batch) for row in rows]
            run = self.next_run(batch, outputs, self.rng.randint(0, LAST_CALLS) if self.rng.randrange(3) else None)
            if await self._until_frozen(run, zombies):
                self.sunk.complete[batch] = None
                batch += self.rng.randrange(6) > 0  # now and then the checkpoint does not know of it
            await self.pause(self.rng.randint(1, 200_000))
        await self._finish(batch, outputs)
        for zombie in zombies:
            await zombie

    async def _until_frozen(self, run: Run, zombies: list[asyncio.Task[bool]]) -> bool:
        """Return whether the run has committed the batch. One that stands still is left to itself."""
        loop, outside = asyncio.get_running_loop(), self.cluster.outside
        task = loop.create_task(run.commit(), context=outside)
        frozen = loop.create_task(run.frozen.wait(), context=outside)
        await asyncio.wait([task, frozen], return_when=asyncio.FIRST_COMPLETED)
        frozen.cancel()
        if task.done():
            return task.result()
        zombies.append(task)
        return False

    async def _finish(self, batch: int, outputs: Sequence[TopicPartition]) -> None:
        """The batch that was under way is completed by a driver that nothing happens to."""
        self.timeout_ms = 20_000
        end_us = self._until_us = self.now_us() + FINISH_US
        self.sunk.rows[batch] = [row for rows in self.split(batch) for row in rows]
        while self.now_us() < end_us:
            if await self.next_run(batch, outputs, None).commit():
                self.sunk.complete[batch] = None
                return
            await self.backoff()

    def attempt(self, transactional_id: str, outputs: Sequence[TopicPartition]) -> Attempt:
        self._attempts += 1
        return Attempt(self, self._attempts, transactional_id, outputs)


class Attempt(Instance):
    """One producer of one of the query's ids, whose requests are those of `transaction.version` 0."""

    def __init__(self, client: Query, number: int, transactional_id: str, targets: Sequence[TopicPartition]) -> None:
        self._id = transactional_id
        super().__init__(client, number, 0, targets, 1)
        self.tried: Tried | None = None
        self._keys: dict[str, bytes] = {}

    @property
    def name(self) -> str:
        return self._id

    async def write_keyed(self, tp: TopicPartition, key: bytes, value: bytes) -> int:
        """Write one record with a key, as `write` does."""
        self._keys[value.decode()] = key
        return await self.write(tp, [value.decode()])

    def _key(self, tp: TopicPartition, value: str) -> bytes | None:
        return self._keys.get(value)

    async def write(self, tp: TopicPartition, values: Sequence[str]) -> int:
        """The offset of the last one. Raises ClientError, also where nobody can tell it."""
        if self.tried is None:
            self.tried = self._tried()
            self.begin(self.tried)
        try:
            await self.add((tp,))
            await self.send(self.tried, tp, values)
        except (Ended, Aborting):
            raise ClientError(f"{self.name}: {tp} does not take what belongs to a transaction") from None
        offset = self.tried.sends[-1].offset
        if offset < 0:
            raise ClientError(f"{self.name}: nobody knows where in {tp} it is")
        return offset


class StateLog:
    """A client of production, of which only the readers of the state topic are used: one partition, as it was at one moment."""

    settings = ClientSettings(bootstrap=("127.0.0.1:9092",), retry_timeout_ms=0)

    def __init__(self, start: int, end: int, data: bytes) -> None:
        self._start, self._end, self._data = start, end, data

    def list_offsets(self, wanted: Mapping[TopicPartition, int], *, read_committed: bool) -> dict[TopicPartition, OffsetAt]:
        assert not read_committed
        offsets = {EARLIEST: self._start, LATEST: self._end}
        return {tp: OffsetAt(offsets[timestamp], -1, -1) for tp, timestamp in wanted.items()}

    def fetch(self, tp: TopicPartition, offset: int, *, read_committed: bool, max_wait_ms: int) -> Fetched:
        assert not read_committed
        whole, _ = whole_batches(self._data, offset)
        return Fetched(memoryview(whole), self._end, -1, self._start, ())


def whole_batches(data: bytes, offset: int) -> tuple[bytes, int]:
    """The whole batches from the one that holds an offset on, and the offset behind them."""
    found, behind = b"", offset
    for header, batch in iter_batches(data):
        if header.last_offset >= offset:
            found, behind = found + bytes(batch), header.next_offset
    return found, behind


def fingerprint(rows: Sequence[str]) -> str:
    """The same of the same rows, in whatever order they come."""
    return hashlib.md5("\n".join(sorted(rows)).encode(), usedforsecurity=False).hexdigest()


class Died(Exception):
    """The process of a driver or of a task, where the run wants it to."""


class Run:
    """One run of a batch: the attempts of its tasks, and its driver. `last`: its last call; None: it lives."""

    def __init__(self, query: Query, batch: int, outputs: Sequence[TopicPartition], last: int | None) -> None:
        self._query, self._batch, self._outputs, self._last = query, batch, outputs, last
        self._split, self.otherwise = query.split(batch), query.otherwise
        self._rng = query.rng
        self._name = f"r{self._rng.randrange(1 << 30)}"
        self._attempts: dict[tuple[str, Producer], Attempt] = {}
        self._late = self._rng.randrange(2) == 0
        """It dies behind its last call, and not before it."""
        self._freezes = self._rng.randrange(2) == 0
        self._since = 0
        """The end of the decisions when it began."""
        self.frozen = asyncio.Event()
        """It stands still; it goes on by itself some time later."""

    async def commit(self) -> bool:
        """Return whether the batch is committed. False: it failed, or its driver died."""
        try:
            self._since = await self._offset(TopicPartition(STATE, DECISIONS_PARTITION), LATEST)
            staged = await self._stage_all()
            await carried_out(
                lambda cluster: protocol_core.commit(
                    cluster, prefix=PREFIX, query=self._query.name, batch=self._batch, run=self._name, staged=staged
                ),
                self._ask,
            )
        except SplitChanged as error:
            if len(self._query.dealt[self._batch]) == 1:
                self._query.sunk.wrong.append(f"batch {self._batch}, run {self._name}: {error}")
            self._query.sunk.refused += 1
            self._query.options_refused(self)
            return False
        except StateLost as error:
            self._query.sunk.wrong.append(f"batch {self._batch}, run {self._name}: {error}")
            return False
        except (ClientError, CommitFailed, Died):
            return False
        return True

    async def _stage_all(self) -> list[Entry]:
        """Tasks run beside one another; some have a twin, and the report of either counts."""
        loop, outside = asyncio.get_running_loop(), self._query.cluster.outside
        split = self._split
        attempts = [task for task, rows in enumerate(split) if rows for _ in range(self._rng.choice((1, 1, 1, 1, 2)))]
        tasks = [loop.create_task(self._stage(task, split[task]), context=outside) for task in attempts]
        if tasks:
            await asyncio.wait(tasks)
        found: dict[int, Entry] = {}
        for task, done in zip(attempts, tasks, strict=True):
            error = done.exception()
            if isinstance(error, ClientError) and attempts.count(task) > 1:
                continue  # its twin has fenced it
            if error is not None:
                raise error
            found.setdefault(task, done.result())
        if {*attempts} != {*found}:
            raise ClientError("no attempt of a task has staged")
        return [entry for _task, entry in sorted(found.items())]

    async def _stage(self, task: int, rows: Sequence[str]) -> Entry:
        def staging(cluster: protocol_core.Cluster) -> Staging:
            query = self._query.name
            return Staging(cluster, prefix=PREFIX, query=query, batch=self._batch, run=self._name, since=self._since, task=task)

        producer = await carried_out(lambda cluster: staging(cluster).begin(), self._ask)
        attempt = self._attempts[staging(cast("Any", None)).transactional_id, producer]
        for at, row in enumerate(rows):
            await self._passes("write")
            await attempt.write(self._outputs[at % len(self._outputs)], [f"{row}#{attempt.number}"])

        def marked(cluster: protocol_core.Cluster) -> Entry:
            again = staging(cluster)
            again.begin()
            return again.mark(len(rows), fingerprint(rows))

        return await carried_out(marked, self._ask, [producer, False])

    # --- the cluster

    async def _passes(self, what: str) -> None:
        """Count a call. Raises Died before the last one; a run that freezes goes on behind a pause."""
        if self._last is None:
            return
        self._last -= 1
        if self._last >= 0:
            return
        self._query.history.transactions.halts[what] += 1
        if not self._freezes:
            raise Died(what)
        self._last = None
        self.frozen.set()
        await self._query.pause(self._rng.choice((1_000, 200_000, 2_000_000, 6_000_000)))

    async def _ask(self, call: Call) -> Any:
        if not self._late:
            await self._passes(call.method)
        answer = await getattr(self, f"_{call.method}")(*call.arguments)
        if self._late:
            await self._passes(call.method)
        return answer

    async def _take_over(self, transactional_id: str) -> Producer:
        attempt = self._query.attempt(transactional_id, self._outputs)
        try:
            await attempt.init(None)
        except Ended:
            raise ClientError(f"{transactional_id} cannot be taken over") from None
        self._attempts[transactional_id, attempt.producer] = attempt
        return attempt.producer

    async def _mark(self, transactional_id: str, producer: Producer, marker: Marker) -> tuple[int, int]:
        partition = marker_partition(marker.query, marker.task, STATE_PARTITIONS)
        return partition, await self._write_record(transactional_id, producer, partition, marker)

    async def _write_record(self, transactional_id: str, producer: Producer, partition: int, record: Marker | Decision) -> int:
        attempt = self._attempts[transactional_id, producer]
        key, value = encode(record)
        return await attempt.write_keyed(TopicPartition(STATE, partition), key, value)

    async def _record(self, transactional_id: str, producer: Producer, decision: Decision) -> None:
        await self._write_record(transactional_id, producer, DECISIONS_PARTITION, decision)
        await self._passes("decide")
        if not await self._end(transactional_id, producer, True):
            raise ClientError("another driver has taken the query over")

    async def _end(self, transactional_id: str, producer: Producer, commit: bool) -> bool:
        attempt = self._attempts[transactional_id, producer]
        tried = attempt.tried
        if tried is not None and commit:
            tried.commit, tried.outcome = True, Outcome.UNKNOWN
        ask = EndAsk(transactional_id, producer, commit, 0)
        while True:
            told = await self._query.ask_coordinator(transactional_id, END, ask)
            if told is not None and told.error is ErrorCode.NONE:
                if tried is not None and commit:
                    tried.outcome, tried.ended_us = Outcome.COMMITTED, self._query.now_us()
                return True
            if told is not None and told.error in FATAL:
                return False
            if self._query.gives_up():
                raise ClientError(f"{transactional_id}: nobody tells how its transaction has ended")
            await self._query.backoff()

    async def _decided(self, query: str, batch: int, since: int) -> bool:
        return is_decided(await self._log(DECISIONS_PARTITION), STATE, query, batch, since)

    async def _last_decision(self, query: str) -> Decision | None:
        return DecisionReader(query).read(await self._log(DECISIONS_PARTITION), STATE)

    async def _fate(self, query: str, batch: int, entry: Entry) -> protocol_core.Fate:
        return fate_of(await self._log(entry.marker_partition), STATE, query, batch, entry)

    async def _log(self, partition: int) -> KafkaClient:
        """Read a partition of the state topic as a client of production would, committed or not."""
        tp = TopicPartition(STATE, partition)
        end = await self._offset(tp, -1)
        start = await self._offset(tp, -2)
        at, data = start, b""
        while at < end:
            found = await self._fetch(tp, at)
            at, data = found[0], data + found[1]
        return cast("KafkaClient", StateLog(start, end, data))

    async def _offset(self, tp: TopicPartition, timestamp: int) -> int:
        query = self._query
        while not query.gives_up():
            leader = await query.leader(tp)
            if leader is not None:
                try:
                    found = await query.call(leader, LIST, ListAsk(tp, timestamp, query.leader_epoch(tp)))
                    if found.error is ErrorCode.NONE:
                        return found.offset
                except (TransportError, ApiError):
                    pass
            await query.backoff()
            await query.refresh()
        raise ClientError(f"{tp}: no offset at {timestamp}")

    async def _fetch(self, tp: TopicPartition, at: int) -> tuple[int, bytes]:
        query = self._query
        while not query.gives_up():
            leader = await query.leader(tp)
            if leader is not None:
                try:
                    found = await query.call(leader, FETCH, FetchAsk(tp, at, query.leader_epoch(tp), 100, 1 << 20))
                    data = bytes(found.records) if found.error is ErrorCode.NONE else b""
                except (TransportError, ApiError):
                    data = b""
                whole, behind = whole_batches(data, at)
                if behind > at:
                    return behind, whole
            await query.backoff()
            await query.refresh()
        raise ClientError(f"{tp}: nothing came from {at} on")
