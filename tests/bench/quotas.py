"""The cost of quotas: a small produce request after another, of a client that no quota bounds and of one whose quota it never
reaches, at one broker, by turns; the same for Apache Kafka, where Java is there. The difference in the broker's processor time is
a decision; the first row is what the hot path costs a cluster that has quotas for others, and before the first quota is set.

Beside it, in this process: one decision by itself, with few and with many scopes, and the question whether there are quotas."""

from __future__ import annotations

import random
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from kraftlite.client.admin import alter_quotas
from kraftlite.local.client import cluster_at
from kraftlite.model.messages.security import QuotaEntityPart
from kraftlite.quotas.matching import PRODUCE
from kraftlite.quotas.rates import QuotaWindows
from kraftlite.quotas.usage import ClientQuotas, Usage
from tests.bench.cluster import BenchCluster, cpu_s, until
from tests.bench.failover import create, serves
from tests.bench.greedy import ask, produce
from tests.bench.sides import sides
from tests.clients.java.apache import apache_kafka

REQUESTS: Final = 5_000
"""In one turn."""
ROUNDS: Final = 5
RATES: Final = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 100_000.0}
TOPIC: Final = "bounded"


class Side(NamedTuple):
    bootstrap: str
    pid: int


@contextmanager
def kraftlite() -> Iterator[Side]:
    with BenchCluster(controllers=1, brokers=1, combined=True) as cluster:
        yield Side(cluster.bootstrap, cluster.nodes()[0].pid)


@contextmanager
def kafka() -> Iterator[Side]:
    with apache_kafka(production=True) as cluster:
        yield Side(cluster.bootstrap_servers, cluster.nodes[1].pid)


def quotas() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, start in sides(kraftlite, kafka).items():
        with start() as side:
            figures |= {f"{name}: {fact}": value for fact, value in figures_of(side).items()}
    return {**figures, **decisions()}


def figures_of(side: Side) -> dict[str, float]:
    create(side.bootstrap, TOPIC, 1, 1)
    until("led", lambda: serves(side.bootstrap, TOPIC, [0]))
    host, _, port = side.bootstrap.rpartition(":")
    turns: dict[str, list[tuple[float, float, float]]] = {"no quota": [], "a quota that is not reached": []}
    with socket.create_connection((host, int(port))) as sock, cluster_at(side.bootstrap) as client:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frame = produce(TOPIC, 100)
        _turn(side, sock, frame)
        for number in range(ROUNDS):
            for kind in turns if number % 2 else reversed(turns):
                alter_quotas(
                    client, {"client-id": None}, {key: None if kind == "no quota" else rate for key, rate in RATES.items()}
                )
                time.sleep(0.5)  # until the broker has it
                turns[kind].append(_turn(side, sock, frame))
    found: dict[str, float] = {}
    for kind, measured in turns.items():
        for fact, values in zip(("µs of CPU a request", "p50, µs", "p99, µs"), zip(*measured, strict=True), strict=True):
            found[f"{kind}: {fact}"] = round(statistics.median(values), 1)
    return found


def _turn(side: Side, sock: socket.socket, frame: bytes) -> tuple[float, float, float]:
    """The broker's processor time for a request, and how long half and 99 of 100 took; in microseconds."""
    took = []
    before = cpu_s(side.pid)
    for _ in range(REQUESTS):
        began = time.perf_counter()
        ask(sock, frame)
        took.append((time.perf_counter() - began) * 1e6)
    used = (cpu_s(side.pid) - before) * 1e6 / REQUESTS
    cuts = statistics.quantiles(took, n=100)
    return used, cuts[49], cuts[98]


class _Nobody:
    def throttling_began(self, usage: Usage, rate: float) -> None:
        raise AssertionError("nobody is over a bound")

    def throttling_ended(self, usage: Usage) -> None:
        raise AssertionError("nobody was")


def decisions() -> dict[str, float]:
    """Nanoseconds of this process."""
    found = {"is there a quota: ns": _ns(_asked_in_vain(None))}
    for scopes in (1, 10_000):
        limits = ClientQuotas(QuotaWindows(11, 1_000), _Nobody())
        limits.set_quotas({(QuotaEntityPart(type="client-id", name=None),): {PRODUCE: "1e12"}}, measures_time=False)
        names = [f"client-{n}" for n in range(scopes)]
        random.Random(1).shuffle(names)

        def decide(number: int, limits: ClientQuotas = limits, names: list[str] = names) -> None:
            usage = limits.of(PRODUCE, "ANONYMOUS", names[number % len(names)], number // 100)
            assert usage is not None
            usage.record(200, number // 100)

        found[f"a decision, {scopes} scopes: ns"] = _ns(decide)
    return found


def _asked_in_vain(quotas: ClientQuotas | None) -> Callable[[int], None]:
    """The part of a request that asks whether there are quotas, where there are none."""

    def ask(_: int) -> None:
        if quotas is not None:
            raise AssertionError("there is none")

    return ask


def _ns(work: Callable[[int], None], times: int = 200_000) -> float:
    """The best of five, without the loop and the call themselves."""
    best = []
    for measured in (work, lambda _: None):
        rounds = []
        for _ in range(5):
            began = time.process_time_ns()
            for number in range(times // 5):
                measured(number)
            rounds.append((time.process_time_ns() - began) / (times // 5))
        best.append(min(rounds))
    return round(best[0] - best[1], 1)
