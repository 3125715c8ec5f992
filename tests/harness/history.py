"""What clients saw of a cluster: every write with its verdict, every record read, every admin call, every view of the metadata.

Each part runs in a thread of its own until `stop`, and says with `problems` what must never be. What only the cluster's own
files can tell is in `tests.harness.verdict`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import threading
import time
import traceback
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from kraftlite.client.errors import ClientError
from kraftlite.client.routing import metadata_values
from kraftlite.local.client import cluster_at
from kraftlite.protocol.api_keys import METADATA

Key = tuple[str, int]
"""Topic and partition."""

PHOENIX = "phoenix"
"""A topic that is deleted and created again all the time."""

NUDGE_S = 5.0
DEAF_NUDGES = 2
"""librdkafka 2.16 forgets the brokers that the metadata does not name; when all of them go away within moments it may wait for
ever for one that it has forgotten, with any `metadata.recovery` setting. Who reaches nobody in so many nudges, nor after a
new client does, is replaced; what it had under way has no verdict."""

QUIET: dict[str, object] = {
    "log_level": 0,
    "log.connection.close": False,
    "error_cb": lambda _error: None,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 300,
    "retry.backoff.ms": 20,
    "socket.timeout.ms": 3000,
    "socket.connection.setup.timeout.ms": 1000,
    "topic.metadata.refresh.interval.ms": 1000,
}


class Background:
    """A thread that calls `step` until it is stopped. An error in it ends it and is a problem."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 90) -> None:
        self._stop.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.found.append(f"{self.name} did not end within {timeout_s} s")

    def problem(self, text: str) -> None:
        if len(self.found) < 20:
            self.found.append(f"{self.name}: {text}")

    def _main(self) -> None:
        try:
            while not self._stop.is_set():
                self.step()
            self.finish()
        except Exception as error:  # noqa: BLE001 - whatever it was, the run must not pass
            self.problem(f"ended with {type(error).__name__}: {error}")

    def step(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """The last thing in the thread."""

    def problems(self) -> list[str]:
        return self.found


def _reaches(client: Any, topic: str) -> bool:
    """Whether this client of librdkafka gets an answer that names a broker."""
    from confluent_kafka import KafkaException

    try:
        return bool(client.list_topics(topic, timeout=2.0).brokers)
    except KafkaException:
        return False


class Writer(Background):
    """Numbered records `<name>:<number>:…` to all partitions of one topic. `acked`: by partition, offset → number; the
    offset is negative where the client was not told one."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int, seed: int, *, acks: str = "all", rate: int = 150):
        super().__init__(name)
        extra: dict[str, object] = {"enable.idempotence": True} if acks == "all" else {"retries": 0}
        self._config = {
            **QUIET,
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "message.timeout.ms": 300_000,
            "linger.ms": 2,
            **extra,
        }
        if acks == "all" and os.environ.get("KRAFTLITE_CHAOS_DEBUG"):
            self._config |= {"debug": os.environ["KRAFTLITE_CHAOS_DEBUG"], "log_level": 7}
        self._renewing = topic == PHOENIX
        self._heard_at = time.monotonic()
        self.nudged = self._deaf = 0
        self.replaced_at: list[float] = []
        self._renew()
        self.topic, self.acks, self._partitions, self._rate = topic, acks, partitions, rate
        self._random = random.Random(f"{seed}-{name}")
        self.sent: dict[Key, int] = defaultdict(int)
        self.verdicts: dict[Key, int] = defaultdict(int)
        self.acked: dict[Key, dict[int, int]] = defaultdict(dict)
        self.failed: list[tuple[Key, int, str]] = []
        self.acked_at: dict[Key, list[tuple[float, float]]] = defaultdict(list)
        """(time of the acknowledgement, time of sending), one for each tenth of a second."""

    def _renew(self) -> None:
        """A new client: librdkafka does not follow a topic that was deleted and created again to a lower leader epoch."""
        from confluent_kafka import Producer

        self._producer: Any = Producer(self._config)
        self._renew_at = time.monotonic() + 1.0

    def step(self) -> None:
        from confluent_kafka import KafkaException

        if self._renewing and time.monotonic() > self._renew_at:
            self._give_up()
            self._renew()
        if time.monotonic() - self._heard_at > NUDGE_S:
            self._nudge()
        partition = self._random.randrange(self._partitions)
        key = (self.topic, partition)
        number = self.sent[key]
        self.sent[key] += 1
        sent_at = time.monotonic()
        padding = "." * self._random.choice((10, 100, 100, 1000, 3000))

        def report(error: Any, message: Any) -> None:
            self._heard_at = time.monotonic()
            self.verdicts[key] += 1
            if error is not None:
                self.failed.append((key, number, error.name()))
                return
            offset = message.offset()  # None: acknowledged by the success of a later batch, so that nobody said where it is
            self.acked[key][-1 - number if offset is None else offset] = number
            times = self.acked_at[key]
            now = time.monotonic()
            if not times or now - times[-1][0] > 0.1:
                times.append((now, sent_at))

        while True:
            try:
                self._producer.produce(
                    self.topic, f"{self.name}:{number}:{padding}".encode(), partition=partition, on_delivery=report
                )
                break
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:  # refused by the client itself: the topic is gone, or has fewer partitions
                report(error.args[0], None)
                break
        self._producer.poll(self._random.random() * 2 / self._rate)

    def _nudge(self) -> None:
        """Make the client look for brokers."""
        self._heard_at = time.monotonic()
        self.nudged += 1
        if _reaches(self._producer, self.topic):
            self._deaf = 0
            return
        self._deaf += 1
        if self._deaf >= DEAF_NUDGES and self._somebody_is_there() and not _reaches(self._producer, self.topic):
            self._deaf = 0
            self.replaced_at.append(time.monotonic())
            self._give_up()
            self._renew()

    def _somebody_is_there(self) -> bool:
        from confluent_kafka.admin import AdminClient

        return _reaches(AdminClient({**QUIET, "bootstrap.servers": self._config["bootstrap.servers"]}), self.topic)

    def _give_up(self) -> None:
        self._producer.purge()
        self._producer.flush(5)

    def finish(self) -> None:
        if self._renewing:
            self._give_up()
        left = self._producer.flush(60)
        if left:
            self.problem(f"{left} records without a verdict")
            self._give_up()
        self._producer = None  # ends its threads: what comes next may have this cluster's ports
        if sum(self.sent.values()) != sum(self.verdicts.values()):
            self.problem(f"{sum(self.sent.values())} records sent, {sum(self.verdicts.values())} verdicts")
        failed = [it for it in self.failed if not (self.replaced_at and it[2].startswith("_PURGE"))]
        if self.acks == "all" and failed:
            self.problem(f"{len(failed)} records failed, the first: {failed[0]}")

    def standing(self) -> str:
        """How far it is, and what ails it."""
        acked = {key: len(acked) for key, acked in self.acked.items()}
        frame = sys._current_frames().get(self._thread.ident or 0)
        where = "ended" if frame is None else "".join(traceback.format_stack(frame, limit=6))
        return (
            f"{self.name}: sent {dict(self.sent)}, verdicts {dict(self.verdicts)}, acknowledged {acked}, "
            f"nudged {self.nudged}, replaced {len(self.replaced_at)}, failed {self.failed[-2:]}, problems {self.found}, {where}"
        )

    def longest_gap(self) -> tuple[float, float, Key | None]:
        """The longest time without an acknowledgement of any partition: (seconds, when it began, partition)."""
        found: tuple[float, float, Key | None] = (0.0, 0.0, None)
        for key, times in self.acked_at.items():
            for (before, _), (after, _) in itertools.pairwise(times):
                if after - before > found[0]:
                    found = (after - before, before, key)
        return found


class Reader(Background):
    """Reads all partitions of some topics, again and again from random places. What was once at an offset stays there."""

    def __init__(self, name: str, bootstrap: str, keys: list[Key], seed: int) -> None:
        super().__init__(name)
        from confluent_kafka import Consumer, TopicPartition

        self._consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "enable.auto.commit": False,
                "check.crcs": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 200,
            }
        )
        self._make = TopicPartition
        self._keys = keys
        self._random = random.Random(f"{seed}-{name}")
        self.seen: dict[Key, dict[int, bytes]] = defaultdict(dict)
        self._next: dict[Key, int] = dict.fromkeys(keys, 0)
        self._consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in keys])
        self._jump_at = time.monotonic() + 1

    def step(self) -> None:
        if time.monotonic() > self._jump_at:
            self._jump_at = time.monotonic() + self._random.random() * 2
            self._jump()
        for message in self._consumer.consume(500, 0.1):
            error = message.error()
            if error is not None:
                if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
                    self.problem(f"{message.topic()}-{message.partition()} at {message.offset()}: {error}")
                continue
            self._note((message.topic(), message.partition()), message.offset(), message.value())

    def _note(self, key: Key, offset: int, value: bytes) -> None:
        seen = self.seen[key]
        before = seen.setdefault(offset, value)
        if before != value:
            self.problem(f"{key} offset {offset} was {_short(before)} and is {_short(value)}")
        if offset > self._next[key] and self._next[key] not in seen:
            self.problem(f"{key}: offset {self._next[key]} was left out, {offset} came")
        self._next[key] = offset + 1

    def _jump(self) -> None:
        key = self._random.choice(self._keys)
        high = max(self.seen[key], default=0)
        target = self._random.randint(max(0, high - 2000), high)
        with contextlib.suppress(Exception):  # refused while librdkafka has no leader for it
            self._consumer.seek(self._make(*key, target))
            self._next[key] = target

    def finish(self) -> None:
        self._consumer.close()


class MetadataWatcher(Background):
    """Asks every broker in turn for its metadata: leader epochs never go back, and an epoch has one leader."""

    def __init__(self, addresses: dict[int, str], incarnation: Any) -> None:
        super().__init__("metadata watcher")
        self._addresses, self._incarnation = addresses, incarnation
        self._leaders: dict[tuple[Any, int, int], int] = {}
        self._epochs: dict[tuple[int, Any, Any, int], int] = {}
        self.views = 0

    def step(self) -> None:
        for node, address in self._addresses.items():
            incarnation = self._incarnation(node)
            try:
                with cluster_at(address) as cluster:
                    answer = cluster.call(METADATA, 12, metadata_values(None), timeout_ms=1_000)
            except (ClientError, OSError):
                continue
            self.views += 1
            if self._incarnation(node) == incarnation:
                self._note(node, incarnation, answer)
            if self._stop.wait(0.05):
                return

    def _note(self, node: int, incarnation: Any, answer: Any) -> None:
        for topic in answer.topics:
            for partition in topic.partitions:
                name, index = f"{topic.name}-{partition.partition_index}", partition.partition_index
                epoch, leader = partition.leader_epoch, int(partition.leader_id)
                if leader >= 0:
                    known = self._leaders.setdefault((topic.topic_id, index, epoch), leader)
                    if known != leader:
                        self.problem(f"{name} epoch {epoch} is led by {known} and by {leader} (node {node})")
                key = (node, incarnation, topic.topic_id, index)
                if epoch < self._epochs.get(key, -1):
                    self.problem(f"{name}: leader epoch went from {self._epochs[key]} to {epoch} on node {node}")
                self._epochs[key] = epoch
                if leader >= 0 and partition.isr_nodes and leader not in partition.isr_nodes:
                    self.problem(f"{name}: leader {leader} is not in the ISR {partition.isr_nodes} (node {node})")


@dataclass
class TopicFate:
    """What is known of one topic name: each name is created once, so its history is a line."""

    name: str
    created: bool | None = None
    """True: acknowledged; False: refused; None: nobody knows."""
    deleted: bool | None = False
    partitions: set[int] = field(default_factory=set)
    configs: set[str | None] = field(default_factory=set)
    """The values that its retention.ms may have."""


class Administrator(Background):
    """Creates, grows, configures and deletes topics, elects leaders. Remembers what was promised."""

    def __init__(self, bootstrap: str, seed: int, elect: list[Key]) -> None:
        super().__init__("administrator")
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
        self._random = random.Random(f"{seed}-admin")
        self._elect = elect
        self.fates: dict[str, TopicFate] = {}
        self.calls: list[tuple[float, str, str]] = []

    def step(self) -> None:
        living = [fate for fate in self.fates.values() if fate.created and fate.deleted is False]
        action = self._random.choice(("create", "create", "delete", "grow", "configure", "elect", "rebirth"))
        if action == "create" or (not living and action in ("delete", "grow", "configure")):
            self._create()
        elif action == "elect":
            self._elect_leader()
        elif action == "rebirth":
            self._rebirth()
        else:
            getattr(self, f"_{action}")(self._random.choice(living))
        self._stop.wait(self._random.random() * 0.4)

    def _call(self, what: str, futures: dict[Any, Any]) -> str:
        from confluent_kafka import KafkaException

        (future,) = futures.values()
        try:
            future.result(25)
            verdict = "ok"
        except KafkaException as error:
            verdict = str(error.args[0].name())
        self.calls.append((time.monotonic(), what, verdict))
        return verdict

    def _create(self) -> None:
        from confluent_kafka.admin import NewTopic

        name = f"made-{len(self.fates)}"
        count, factor = self._random.choice((1, 2, 5)), self._random.choice((1, 2, 3))
        fate = self.fates[name] = TopicFate(name=name, partitions={count}, configs={"600000"})
        topic = NewTopic(name, count, factor, config={"retention.ms": "600000"})
        verdict = self._call(f"create {name}", self._admin.create_topics([topic], operation_timeout=3, request_timeout=5))
        # A call that was sent again by the client after a lost answer finds what the first one made.
        fate.created = True if verdict in ("ok", "TOPIC_ALREADY_EXISTS") else False if _refused(verdict) else None

    def _delete(self, fate: TopicFate) -> None:
        fate.deleted = None
        verdict = self._call(
            f"delete {fate.name}", self._admin.delete_topics([fate.name], operation_timeout=3, request_timeout=5)
        )
        fate.deleted = True if verdict in ("ok", "UNKNOWN_TOPIC_OR_PART") else None

    def _grow(self, fate: TopicFate) -> None:
        from confluent_kafka.admin import NewPartitions

        if len(fate.partitions) > 1:
            return
        wanted = max(fate.partitions) + self._random.choice((1, 2))
        fate.partitions.add(wanted)
        verdict = self._call(
            f"grow {fate.name}", self._admin.create_partitions([NewPartitions(fate.name, wanted)], request_timeout=5)
        )
        if verdict == "ok":
            fate.partitions = {wanted}

    def _configure(self, fate: TopicFate) -> None:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        value = str(self._random.randrange(10**6, 10**9))
        fate.configs.add(value)
        entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, fate.name, incremental_configs=[entry])
        verdict = self._call(f"configure {fate.name}", self._admin.incremental_alter_configs([resource], request_timeout=5))
        if verdict == "ok" and len(fate.configs) == 2:
            fate.configs = {value}

    def _rebirth(self) -> None:
        """The same name again and again, while it is written to: what was of an older topic must not come back."""
        from confluent_kafka.admin import NewTopic

        self._call("delete-again", self._admin.delete_topics([PHOENIX], operation_timeout=3, request_timeout=5))
        self._stop.wait(self._random.choice((0.0, 0.2)))
        self._call("create-again", self._admin.create_topics([NewTopic(PHOENIX, 2, 3)], operation_timeout=3, request_timeout=5))

    def _elect_leader(self) -> None:
        from confluent_kafka import ElectionType, KafkaException, TopicPartition

        tp = TopicPartition(*self._random.choice(self._elect))
        try:
            self._admin.elect_leaders(ElectionType.PREFERRED, [tp]).result(25)
            verdict = "ok"
        except KafkaException as error:
            verdict = str(error.args[0].name())
        self.calls.append((time.monotonic(), f"elect {tp}", verdict))


def _refused(verdict: str) -> bool:
    """Errors that say that nothing was done. Not that brokers are missing: a broker asks again, and an earlier controller may
    have done it already."""
    return verdict in ("POLICY_VIOLATION", "INVALID_PARTITIONS")


def _short(value: bytes) -> str:
    return value[:40].decode("utf-8", "replace")
