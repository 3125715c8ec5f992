"""The table of deaths of the exactly-once sink on a real Apache Kafka: `python -m tests.spark.compare_exactly_once`.

The same protocol, client and judge as in tests/embedded/test_exactly_once.py. Needs Java and the jars (tests/clients/java), but
no Spark. Rows in which a broker is killed or silent have a cluster of three.
Prints a line for each row, and ends with 1 when a reader sees anything but every row once, where `KNOWN` does not say why.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import MappingProxyType

from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError
from kraftlite.client.settings import ClientSettings
from kraftlite.client.transactions import TransactionDescription, describe_transactions
from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC
from kraftlite.exactly_once.protocol_core import CommitFailed, Overtaken, SplitChanged, TooLate
from kraftlite.exactly_once.records import DECISIONS_PARTITION, STATE_TOPIC, driver_id
from tests.bench.cluster import until
from tests.bench.failover import whole
from tests.clients.java.apache import SMALL, ApacheKafka, apache_kafka
from tests.harness.exactly_once import Died, Driver, Dying, values

SPLIT = (("a", "b", "c"), ("d", "e"), ("f",))
ROWS = [row for part in SPLIT for row in part]
CALLS = 6
PATIENCE_S = 120.0
NOBODY_LEADS = "row 10: the same, and the broker is killed and fenced before the outcome reaches it"
KNOWN = {
    NOBODY_LEADS: "Apache Kafka 4.3 takes a partition without a leader for a deleted one, which needs no marker (KAFKA-20734)"
}
"""Rows that do not hold on Apache Kafka, and why."""
PATIENT = {"broker.session.timeout.ms": "120000", "transaction.state.log.replication.factor": "1"}
"""Whoever is silent leads on, and the coordinator does not wait for it."""
_NUMBERS = count(1)


class World:
    """One query and its topic for each row."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self.kafka, self.bootstrap, self.number = kafka, kafka.bootstrap_servers, next(_NUMBERS)
        self.topic = f"out-{self.number}"
        self.create(self.topic, [list(kafka.nodes)] * 2)

    def create(self, topic: str, replicas: list[list[int]]) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for it in admin.create_topics([NewTopic(topic, len(replicas), replica_assignment=replicas)]).values():
            it.result(20)

    def driver(self, *, batch: int = 0, query: str = "", **more: int) -> Driver:
        query, run = query or f"q{self.number}", f"r{next(_NUMBERS)}"
        return Driver(self.bootstrap, self.topic, query, batch=batch, run=run, **more)

    def seen(self) -> list[str]:
        return values(self.bootstrap, self.topic)

    def leader(self, topic: str, partition: int) -> int:
        with self.cluster() as cluster:
            return cluster.leaders([topic])[topic, partition] or 0

    def described(self, transactional_id: str) -> TransactionDescription:
        with self.cluster() as cluster:
            found = describe_transactions(cluster, [transactional_id])[transactional_id]
        if isinstance(found, ClientError):
            raise found
        return found

    def cluster(self) -> ClusterClient:
        return ClusterClient(ClientSettings(bootstrap=tuple(self.bootstrap.split(",")), retry_backoff_ms=50))

    def fence(self, node: int) -> None:
        """Kill it; returns when its partition has no leader."""
        self.kafka.kill(node)
        until("nobody leads", lambda: self.leader(self.topic, 0) == 0, every_s=0.2, timeout_s=PATIENCE_S)

    def start(self, node: int) -> None:
        """One that was killed."""
        self.kafka.start(node)
        self.kafka.wait()
        self.wait_whole()

    def pause(self, node: int) -> None:
        self.kafka.pause(node)

    def resume(self, node: int) -> None:
        """One that was paused."""
        self.kafka.resume(node)
        self.wait_whole()

    def wait_whole(self) -> None:
        for topic in (self.topic, STATE_TOPIC, TRANSACTION_TOPIC):
            until(f"{topic} is whole", lambda topic=topic: whole(self.bootstrap, topic), every_s=0.2, timeout_s=PATIENCE_S)  # type: ignore[misc]

    def again(self) -> None:
        one = self.driver()
        one.commit(one.stage_all(SPLIT))
        must(self.seen() == ROWS, f"seen are {self.seen()}")


def must(holds: bool, what: str) -> None:
    if not holds:
        raise RuntimeError(what)


def refused(kinds: tuple[type[Exception], ...], work: Callable[[], object]) -> str:
    try:
        work()
    except kinds as error:
        return str(error)
    raise RuntimeError(f"it was taken, and not refused by {kinds}")


def death(at: int, after: bool) -> Callable[[World], None]:
    def story(world: World) -> None:
        one = world.driver()
        staged = one.stage_all(SPLIT)
        refused((Died,), lambda: one.commit(staged, Dying(one.cluster, at, after=after)))
        world.again()
        world.again()
        following = world.driver(batch=1)
        following.commit(following.stage_all((("x",),)))
        late = world.driver()
        staged = late.stage_all(SPLIT)
        refused((Overtaken,), lambda: late.commit(staged))
        must(world.seen() == [*ROWS, "x"], f"seen are {world.seen()}")

    return story


def attempts(world: World) -> None:
    one = world.driver()
    half = one.staging(0)
    producer = half.begin()
    one.write(half, producer, SPLIT[0])
    staged = world.driver().stage_all(SPLIT)
    refused((ClientError,), lambda: one.write(half, producer, ["zombie"]))
    twin = world.driver()
    twin.stage(1, SPLIT[1])
    refused((CommitFailed,), lambda: one.commit(staged))
    must(world.seen() == ["a", "b", "c", "f"], f"seen are {world.seen()}")
    world.again()


def timeout(world: World) -> None:
    one = world.driver(timeout_ms=2_000)
    staged = one.stage_all(SPLIT)
    deadline = time.monotonic() + 30
    with ClusterClient(one.client.settings) as cluster:
        names = [entry.transactional_id for entry in staged]
        while {getattr(it, "state", "") for it in describe_transactions(cluster, names).values()} != {"CompleteAbort"}:
            must(time.monotonic() < deadline, "the coordinator does not abort what has timed out")
            time.sleep(0.05)
    must("kafka.transaction.timeout.ms" in refused((CommitFailed,), lambda: one.commit(staged)), "the error names the timeout")
    must(world.seen() == [], f"seen are {world.seen()}")
    world.again()


def beside(at: int) -> Callable[[World], None]:
    def story(world: World) -> None:
        old = world.driver()
        staged = old.stage_all(SPLIT)
        refused((CommitFailed, ClientError), lambda: old.commit(staged, Dying(old.cluster, at, then=lambda _name: world.again())))
        must(world.seen() == ROWS, f"seen are {world.seen()}")
        world.again()

    return story


def waits(away: Callable[[World, int], None], back: Callable[[World, int], None]) -> Callable[[World], None]:
    """The only replica of the rows is away when their transaction is committed."""

    def story(world: World) -> None:
        one = world.driver(partitions=1)
        name = one.staging(0).transactional_id
        one.staging(0).begin()
        coordinator = world.described(name).coordinator
        leader = next(it for it in world.kafka.nodes if it != coordinator)
        world.topic = one.topic = f"{one.topic}-alone"
        world.create(world.topic, [[leader]])
        one.commit([one.stage(0, SPLIT[0])], Dying(one.cluster, 3, then=lambda _name: away(world, leader)))
        found = world.described(name)
        must(found.state == "PrepareCommit", f"without the partition the commit is {found}")
        again = world.driver(partitions=1)
        again.topic = one.topic
        with ThreadPoolExecutor(1) as pool:
            staged = pool.submit(again.stage, 0, SPLIT[0])
            early = world.described(name).state != "PrepareCommit" or staged.done()
            back(world, leader)
            again.commit([staged.result(PATIENCE_S)])
        must(not early, "the next run staged beside a commit that was under way")
        must(world.seen() == sorted(SPLIT[0]), f"seen are {world.seen()}")

    return story


def broker(who: str) -> Callable[[World], None]:
    """It is killed before the decision is recorded."""

    def story(world: World) -> None:
        one = world.driver()
        staged = one.stage_all(SPLIT)
        victims = {
            "decisions": lambda: world.leader(STATE_TOPIC, DECISIONS_PARTITION),
            "rows": lambda: world.leader(world.topic, 0),
            "the driver's coordinator": lambda: world.described(driver_id("p", one.query)).coordinator,
            "a task's coordinator": lambda: world.described(staged[0].transactional_id).coordinator,
        }
        killed: list[int] = []

        def kill(_name: str) -> None:
            killed.append(victims[who]())
            world.kafka.kill(killed[0])

        one.commit(staged, Dying(one.cluster, 2, then=kill))
        world.start(killed[0])
        must(world.seen() == ROWS, f"seen are {world.seen()}")
        world.again()

    return story


def other_query(world: World) -> None:
    world.again()
    other = world.driver(query=f"q{world.number}-other")
    other.commit(other.stage_all(SPLIT))
    must(world.seen() == sorted([*ROWS, *ROWS]), f"seen are {world.seen()}")


def late(world: World) -> None:
    dead, one = world.driver(), world.driver()
    one.commit(one.stage_all(SPLIT))
    refused((TooLate,), lambda: one.staging(1).begin())
    refused((TooLate,), lambda: dead.staging(1).begin())
    must(world.seen() == ROWS, f"seen are {world.seen()}")


def split(world: World) -> None:
    one = world.driver()
    staged = one.stage_all(SPLIT)
    refused((Died,), lambda: one.commit(staged, Dying(one.cluster, 4)))
    other = world.driver()
    staged = other.stage_all((tuple(ROWS),))
    refused((SplitChanged,), lambda: other.commit(staged))
    must(world.seen() == ["a", "b", "c"], f"seen are {world.seen()}")
    world.again()


def limit(world: World) -> None:
    one = world.driver(timeout_ms=600_001)
    told = refused((ClientError,), lambda: one.stage(0, ["x"]))
    must("the brokers allow at most 600000" in told, told)


def stories() -> Iterator[tuple[str, Callable[[World], None]]]:
    yield "rows 1-4: attempts that die, twins, zombies", attempts
    for at in range(CALLS):
        for after in (False, True):
            yield f"rows 5-9: a driver dies {'behind' if after else 'before'} call {at}", death(at, after)
    yield "row 11: a timeout", timeout
    for at in range(2, CALLS):
        yield f"row 12: an old driver goes on before call {at}", beside(at)
    yield "row 14: another split", split
    yield "row 15: another query", other_query
    yield "row 16: an attempt that begins behind the commit", late
    yield "SX-04: the brokers' limit", limit


def killing() -> Iterator[tuple[str, Callable[[World], None]]]:
    """Those that kill brokers."""
    for who in ("decisions", "rows", "the driver's coordinator", "a task's coordinator"):
        yield f"row 13: the broker dies that leads or is: {who}", broker(who)
    yield NOBODY_LEADS, waits(World.fence, World.start)


def silent() -> Iterator[tuple[str, Callable[[World], None]]]:
    """Those in which a broker says nothing and leads on."""
    yield "row 10: a commit that is under way is waited for", waits(World.pause, World.resume)


def main() -> int:
    failed = held(1, stories()) + held(3, killing()) + held(3, silent(), PATIENT)
    print(f"{failed} rows are not as expected on Apache Kafka" if failed else "every row is as expected on Apache Kafka")
    return 1 if failed else 0


def held(nodes: int, rows: Iterator[tuple[str, Callable[[World], None]]], more: Mapping[str, str] = MappingProxyType({})) -> int:
    """How many of the rows do not hold, or are in `KNOWN` and do. `more`: configs of the nodes."""
    config = {
        **SMALL,
        **more,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        "transaction.max.timeout.ms": "600000",
        "default.replication.factor": str(nodes),
    }
    failed = 0
    with apache_kafka(nodes=nodes, config=config) as kafka:
        for name, story in rows:
            try:
                story(World(kafka))
                failed += name in KNOWN
                print(f"{'HOLDS NOW' if name in KNOWN else 'holds    '} {name}", flush=True)
            except (RuntimeError, CommitFailed, ClientError, Died, AssertionError) as error:
                failed += name not in KNOWN
                print(f"{'known    ' if name in KNOWN else 'BROKEN   '} {name}: {type(error).__name__}: {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
