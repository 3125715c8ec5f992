"""The table of deaths of the exactly-once sink on a real Apache Kafka: `python -m tests.spark.compare_exactly_once`.

The same protocol, client and judge as in tests/embedded/test_exactly_once.py. Needs Java and the jars (tests/clients/java), but
no Spark.
Prints a line for each row, and ends with 1 when a reader sees anything but every row once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from itertools import count

from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError
from kraftlite.client.transactions import describe_transactions
from kraftlite.exactly_once.protocol_core import CommitFailed, Overtaken, SplitChanged
from tests.clients.java.apache import SMALL, apache_kafka
from tests.harness.exactly_once import Died, Driver, Dying, values

SPLIT = (("a", "b", "c"), ("d", "e"), ("f",))
ROWS = [row for part in SPLIT for row in part]
CALLS = 6
_NUMBERS = count(1)


class World:
    """One query and its topic for each row."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        self.bootstrap, self.number = bootstrap, next(_NUMBERS)
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for it in admin.create_topics([NewTopic(f"out-{self.number}", 2, 1)]).values():
            it.result(20)

    def driver(self, *, batch: int = 0, timeout_ms: int = 60_000) -> Driver:
        topic, query, run = f"out-{self.number}", f"q{self.number}", f"r{next(_NUMBERS)}"
        return Driver(self.bootstrap, topic, query, batch=batch, run=run, timeout_ms=timeout_ms)

    def seen(self) -> list[str]:
        return values(self.bootstrap, f"out-{self.number}")

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
    yield "SX-04: the brokers' limit", limit


def main() -> int:
    config = {
        **SMALL,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        "transaction.max.timeout.ms": "600000",
    }
    failed = 0
    with apache_kafka(config=config) as kafka:
        for name, story in stories():
            try:
                story(World(kafka.bootstrap_servers))
                print(f"holds    {name}", flush=True)
            except (RuntimeError, CommitFailed, ClientError, Died, AssertionError) as error:
                failed += 1
                print(f"BROKEN   {name}: {type(error).__name__}: {error}", flush=True)
    print(f"{failed} rows do not hold on Apache Kafka" if failed else "every row holds on Apache Kafka")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
