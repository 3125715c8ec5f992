"""Transactions of librdkafka on a cluster of processes under faults: `python -m tests.clients.confluent.soak_transactions`.

Every transactional id has one instance after another; some begin while the one before lives on, and some die in the middle of a
transaction. Meanwhile coordinators, leaders and controllers are killed, stopped, or stand still for longer than their session.
Three readers of committed records read from the beginning on, two of them all the time. At the end each of them must have seen
the same, of each transaction all or nothing, once: all of one whose commit was acknowledged, nothing of one that was aborted; and
nothing of an instance that began the transaction behind its successor's id. Prints what happened; ends with 1 when that does
not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kraftlite.client.errors import ClientError
from kraftlite.coordinator.core.placement import partition_for
from kraftlite.local.state import LocalError
from tests.harness.local import FAST, Cluster, running

COORDINATORS: Final = 5
CONFIG: Final = {
    **FAST,
    "broker.session.timeout.ms": "3000",
    "min.insync.replicas": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "transaction.state.log.num.partitions": str(COORDINATORS),
}
PLACES: Final = (("a", 0), ("a", 1), ("b", 0))
PATIENCE_S: Final = 120.0
Place = tuple[str, int]
Seen = dict[Place, list[tuple[int, str]]]


@dataclass(eq=False, slots=True)
class Tried:
    """One transaction. `outcome`: open, aborted, unknown or committed, as its producer knows it."""

    name: str
    began_s: float
    values: list[tuple[Place, str]] = field(default_factory=list)
    outcome: str = "open"


@dataclass(eq=False, slots=True)
class Told:
    """All that producers tell. `given`: of each id, when which instance was given it."""

    tried: list[Tried] = field(default_factory=list)
    given: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    errors: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)


class Instance:
    """One producer of an id, in a thread of its own, until it is fenced, dies, or has lived long enough."""

    def __init__(self, bootstrap: str, name: str, number: int, rng: random.Random, told: Told) -> None:
        self._bootstrap, self._name, self._number, self._rng, self._told = bootstrap, name, number, rng, told
        self._timeout_ms = rng.choice((3_000, 6_000, 60_000))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        config: dict[str, Any] = {
            "transactional.id": self._name,
            "transaction.timeout.ms": self._timeout_ms,
            "message.timeout.ms": self._rng.choice((1_500, self._timeout_ms)),
            "socket.timeout.ms": 3_000,
            "log_level": 0,
        }
        producer = Producer({"bootstrap.servers": self._bootstrap, "error_cb": lambda _error: None, **config})
        ends_s = time.monotonic() + self._rng.uniform(4, 25)
        try:
            producer.init_transactions(PATIENCE_S)
            self._told.given[self._name].append((time.monotonic(), self._number))
            turn = 0
            while not self._told.over.is_set() and time.monotonic() < ends_s and self._transact(producer, turn):
                turn += 1
        except KafkaException as error:
            self._told.errors[error.args[0].name()] += 1

    def _transact(self, producer: Producer, turn: int) -> bool:
        """One transaction; False: the producer dies in it."""
        tried = Tried(f"{self._name}/{self._number}/{turn}", time.monotonic())
        self._told.tried.append(tried)
        producer.begin_transaction()
        try:
            for index in range(self._rng.choice((1, 2, 3, 8))):
                for topic, partition in self._rng.sample(PLACES, self._rng.randint(1, len(PLACES))):
                    value = f"{tried.name}/{index}/{topic}-{partition}"
                    tried.values.append(((topic, partition), value))
                    producer.produce(topic, value.encode(), partition=partition)
                    producer.poll(0)
            if self._rng.randrange(2):
                producer.flush(5)
            if self._rng.randrange(12) == 0 and self._timeout_ms < 10_000:
                time.sleep(self._timeout_ms / 1000 * self._rng.uniform(0.8, 1.4))
            if self._rng.randrange(25) == 0:
                return False
            commit = self._rng.randrange(10) < 7
            tried.outcome = "unknown" if commit else "aborted"
            _again(producer.commit_transaction if commit else producer.abort_transaction)
            tried.outcome = "committed" if commit else "aborted"
        except KafkaException as error:
            self._told.errors[error.args[0].name()] += 1
            if not error.args[0].txn_requires_abort():
                raise
            tried.outcome = "aborted"
            _again(producer.abort_transaction)
        return True


def _again(end: Any) -> None:
    """An end may be asked for again while its answer says so."""
    while True:
        try:
            return end(30)  # type: ignore[no-any-return]
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def succession(bootstrap: str, name: str, rng: random.Random, told: Told) -> None:
    """One instance after another, half of them before the last one has ended."""
    instances: list[Instance] = []
    while not told.over.is_set():
        instances.append(Instance(bootstrap, name, len(instances), random.Random(rng.random()), told))
        instances[-1].thread.join(rng.uniform(2, 15))
        if rng.randrange(2):
            instances[-1].thread.join(PATIENCE_S)
    for it in instances:
        it.thread.join(PATIENCE_S)


def read(bootstrap: str, name: str, seen: Seen, over: threading.Event) -> None:
    """Read all that is committed until it is `over`, then to the end; with a new consumer every 15 s, and for the end."""
    while True:
        last = over.is_set()
        config = {"group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed", "log_level": 0}
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "enable.partition.eof": True, "error_cb": lambda _error: None, **config}
        )
        consumer.assign([TopicPartition(*it, seen[it][-1][0] + 1 if seen[it] else 0) for it in PLACES])
        ended: set[Place] = set()
        until_s = time.monotonic() + 15
        while last or (not over.is_set() and time.monotonic() < until_s):
            message = consumer.poll(0.5)
            if message is None:
                continue
            place = (str(message.topic()), int(message.partition() or 0))
            error = message.error()
            if error is None:
                seen[place].append((int(message.offset() or 0), (message.value() or b"").decode()))
                ended.discard(place)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(place)
            if last and len(ended) == len(PLACES):
                consumer.close()
                return
        consumer.close()


def faults(cluster: Cluster, ids: Sequence[str], rng: random.Random, seconds: float) -> Iterator[str]:
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        time.sleep(rng.uniform(1, 5))
        whom = rng.choice(("leader", "coordinator", "coordinator", "controller", "broker"))
        how = rng.choice(("kill", "kill", "stand still", "stop"))
        try:
            if whom == "leader":
                node = cluster.leader(*rng.choice(PLACES))
            elif whom == "coordinator":
                node = cluster.leader("__transaction_state", partition_for(rng.choice(ids), COORDINATORS))
            else:
                node = cluster.active_controller() if whom == "controller" else rng.choice(cluster.brokers)
            if how == "stand still":
                cluster.pause(node)
                time.sleep(rng.uniform(0.5, 6))
                cluster.resume(node)
            else:
                cluster.kill(node) if how == "kill" else cluster.terminate(node)
                cluster.wait_stopped(node)
                time.sleep(rng.uniform(0.1, 4))
                cluster.restart(node)
            if rng.randrange(3):
                cluster.wait_brokers()
        except (AssertionError, ClientError, LocalError) as error:  # nobody leads just now
            yield f"{whom}: {error}"
            continue
        yield f"{whom} {node}: {how}"


def judge(told: Told, readers: Sequence[Seen]) -> list[str]:
    """What is wrong."""
    found = [
        f"{it[0]}-{it[1]}: readers have seen different records" for it in PLACES for seen in readers if seen[it] != readers[0][it]
    ]
    count = Counter(value for place in PLACES for _, value in readers[0][place])
    for it in told.tried:
        there = [count[value] for _, value in it.values]
        if any(times > 1 for times in there):
            found.append(f"{it.name}: a record is there twice")
        if any(there) and not all(there):
            found.append(f"{it.name}, {it.outcome}: {sum(map(bool, there))} of {len(there)} records are there")
        if it.outcome == "committed" and not all(there):
            found.append(f"{it.name}: its commit was acknowledged, and it is not there")
        if it.outcome in ("aborted", "open") and any(there):
            found.append(f"{it.name}: {it.outcome}, and it is there")
        name, number, _ = it.name.split("/")
        given = told.given[name]
        own_s = max((at_s for at_s, who in given if who == int(number)), default=0.0)
        if it.outcome == "committed" and any(own_s < at_s < it.began_s for at_s, _ in given):
            found.append(f"{it.name}: it was begun behind another instance's id, and is committed")
    strangers = count.keys() - {value for it in told.tried for _, value in it.values}
    return found + [f"{it}: nobody has written it" for it in sorted(strangers)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.clients.confluent.soak_transactions", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long something is killed (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn; what happens is not the same twice")
    options = parser.parse_args()
    rng, told, over = random.Random(options.seed), Told(), threading.Event()
    ids = [f"x{number}" for number in range(4)]
    readers: list[Seen] = [defaultdict(list) for _ in range(3)]
    with running(controllers=3, brokers=3, config=CONFIG) as cluster:
        at = cluster.bootstrap
        for topic in sorted({topic for topic, _ in PLACES}):
            cluster.create_topic(topic, sum(it[0] == topic for it in PLACES))
        reading = [threading.Thread(target=read, args=(at, f"r{n}", readers[n], over), daemon=True) for n in (0, 1)]
        writing = [
            threading.Thread(target=succession, args=(at, it, random.Random(rng.random()), told), daemon=True) for it in ids
        ]
        for thread in (*reading, *writing):
            thread.start()
        for said in faults(cluster, ids, rng, options.seconds):
            print(said, flush=True)
        told.over.set()
        with contextlib.suppress(LocalError):
            cluster.heal()
        for thread in writing:
            thread.join(2 * PATIENCE_S)
        for it in ids:  # what is open is aborted
            Producer({"bootstrap.servers": at, "transactional.id": it, "log_level": 0}).init_transactions(PATIENCE_S)
        over.set()
        for thread in reading:
            thread.join(PATIENCE_S)
        read(at, "fresh", readers[2], over)
    wrong = judge(told, readers)
    outcomes = Counter(it.outcome for it in told.tried)
    print(f"transactions: {dict(outcomes)}; errors: {dict(told.errors)}; records: {sum(map(len, readers[2].values()))}")
    print("\n".join(wrong) or "every reader has seen each committed transaction whole, once, and nothing else")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
