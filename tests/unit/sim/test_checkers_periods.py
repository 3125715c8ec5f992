"""What happens after a period happens no sooner, or the checker says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import Endpoint
from kraftlite.model.messages.methods import REPLICA_FETCH
from kraftlite.replication.api import FetchResult
from kraftlite.replication.partition import PartitionEnv
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.i96_waits import WaitsEnd
from kraftlite.sim.checkers.isr_lag import IsrLag
from kraftlite.sim.checkers.isr_shrinks import ShrinksDeserved
from kraftlite.sim.checkers.producer_state import ProducerStateKept
from kraftlite.sim.checkers.replica_facts import may_forget_producers
from kraftlite.sim.service import FETCH, PRODUCE, FetchAsk, ProduceAsk
from kraftlite.sim.shape import NAMED
from tests.harness.orders_cluster import TP, Orders, orders
from tests.harness.violations import Cases, assert_found

CASES: Cases[Orders] = Cases()
EXPIRATION = "producer.id.expiration.ms"


@pytest.fixture
def make() -> Iterator[Callable[..., Orders]]:
    with orders() as start:
        yield start


@CASES.breaks(ProducerStateKept, r"forgets producer 7 \d+ ms after .*; it expires after 86400000 ms")
def a_producer_that_expires_too_soon(cluster: Orders) -> None:
    log = cluster.log(cluster.follower)
    log.remove_expired_producers(cluster.cluster.wall_ms(cluster.follower.node_id) + 86_400_000)
    cluster.go(1)


@CASES.breaks(IsrLag, r"keeps node \d in its ISR .*, which lacks records up to 4 and was not heard of for \d+ ms")
def a_leader_that_looks_at_no_laggard(cluster: Orders) -> None:
    partition = cluster.partition(cluster.leader)
    object.__setattr__(partition, "check_isr", lambda now_ms: None)
    cluster.only_leader_writes()
    cluster.go(12_000)


@CASES.breaks(IsrLag, r"keeps node \d in its ISR .*, which asked for 3 and has not got to 4, where the log ended \d+ ms ago")
def a_leader_to_whom_every_fetch_says_that_all_is_well(cluster: Orders) -> None:
    leader = cluster.leader.node_id
    partition = cluster.partition(cluster.leader)
    object.__setattr__(partition, "check_isr", lambda now_ms: None)
    cluster.only_leader_writes()
    again = cluster.ask_fetch(partition.leader_epoch)
    followers = [it for it in partition.replicas if it != leader]
    for _ in range(24):
        for follower in followers:
            cluster._tell(lambda it, who=follower: it.on_call(who, leader, REPLICA_FETCH, again))
        cluster.go(500)


@CASES.breaks(ShrinksDeserved, r"proposes to remove node \d from its ISR .*, which was caught up \d+ ms ago")
def a_leader_that_has_no_patience(cluster: Orders) -> None:
    cluster.go(1_000)
    partition = cluster.partition(cluster.leader)
    hasty: PartitionEnv = replace(partition._env, lag_time_max_ms=-1)
    object.__setattr__(partition, "_env", hasty)
    cluster.only_leader_writes()
    cluster.go(5_000)


@CASES.breaks(WaitsEnd, r"has not answered Replica/Fetch of \d, which may wait for \d+ ms, for \d+ ms")
def a_leader_whose_timers_never_come(cluster: Orders) -> None:
    node, here = cluster.leader.node, cluster.leader.now
    assert node is not None and node.broker is not None and here is not None
    clock = here.clock
    deaf = SimpleNamespace(now_ms=clock.now_ms, now_us=clock.now_us, call_later=lambda *_: SimpleNamespace(cancel=lambda: None))
    object.__setattr__(node.broker.replicas._service, "_clock", deaf)
    cluster.go(8_000)


@CASES.breaks(WaitsEnd, r"node \d has led orders-0 no more for \d+ ms, and a produce waits there still")
def a_replica_that_goes_without_a_word(cluster: Orders) -> None:
    partition = cluster.partition(cluster.leader)
    object.__setattr__(partition, "fail_waiting", lambda error: None)
    cluster.only_leader_writes()
    ask = ProduceAsk(TP, -1, 3_000, cluster.batch())
    cluster.loop.create_task(cluster.client.call(Endpoint(f"n{cluster.leader.node_id}", 9092), PRODUCE, ask, 4_000))
    cluster.go(200)
    partition.go_offline("a test")
    cluster.go(2_000)


def fetch(cluster: Orders, min_bytes: int) -> None:
    """A client waits at the end of the leader's log, for up to 5 s."""
    end = cluster.log(cluster.leader).hw
    ask = FetchAsk(TP, end, None, 5_000, 1 << 20, min_bytes=min_bytes)
    cluster.loop.create_task(cluster.client.call(Endpoint(f"n{cluster.leader.node_id}", 9092), FETCH, ask, 6_000))
    cluster.go(300)


@CASES.breaks(WaitsEnd, r"node \d has had enough for a fetch for \d+ ms, and it waits there still")
def a_consumer_that_nobody_wakes(cluster: Orders) -> None:
    fetch(cluster, 1)
    cluster.partition(cluster.leader).waiters.clear()
    cluster.produce()
    cluster.go(2_000)


@CASES.breaks(WaitsEnd, r"node \d answers a fetch after \d+ ms with 0 bytes, and has \d+ for it")
def a_consumer_that_is_answered_with_less_than_it_wants(cluster: Orders) -> None:
    fetch(cluster, 10_000)
    checker = next(it for it in cluster.checkers if isinstance(it, WaitsEnd))
    exchange = next(it for it in checker._waits if it.method is FETCH)
    empty = FetchResult(tp=TP, error=ErrorCode.NONE, hw=3, last_stable_offset=3, log_start_offset=0, records=b"")
    checker.on_served(exchange, empty)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_what_breaks_a_period_is_found(
    make: Callable[..., Orders], checker: CheckerFactory, violate: Callable[[Orders], Any], words: str
) -> None:
    assert_found(make(checker), checker, violate, words)


def test_a_fetch_does_not_wait_for_more_where_the_log_goes_on_in_a_closed_segment(make: Callable[..., Orders]) -> None:
    cluster = make(WaitsEnd)
    log = cluster.log(cluster.leader)
    log.on_roll = None  # nothing runs beside the test
    for _ in range(2):
        log.roll()
        log.flush_sync()
        cluster.produce()
        cluster.until(lambda: log.hw == log.leo)
    log.roll()
    assert log.segment_base_offsets == (0, 3, 4, 5)
    ask = FetchAsk(TP, 3, None, 5_000, 1 << 20, min_bytes=10_000)
    found = cluster.do(cluster.client.call(Endpoint(f"n{cluster.leader.node_id}", 9092), FETCH, ask, 6_000))
    assert 0 < len(found.records) < 10_000


def test_a_producer_that_was_idle_for_long_enough_may_be_forgotten(make: Callable[..., Orders]) -> None:
    cluster = make(ProducerStateKept)
    node = cluster.follower
    log = cluster.log(node)
    assert node.now is not None
    node.now.clock.jump_wall(86_400_000)
    assert log.remove_expired_producers(node.now.clock.wall_ms()) == 1
    cluster.go(100)


def test_a_producer_whose_clock_was_a_day_behind_may_be_forgotten_when_its_replica_is_cut(make: Callable[..., Orders]) -> None:
    cluster = make(ProducerStateKept)
    node = cluster.follower
    log = cluster.log(node)
    assert node.now is not None
    node.now.clock.jump_wall(86_400_000)
    cluster.cut_off(node.node_id)
    log.truncate_to(1, allow_below_hw=True)
    assert log.remove_expired_producers(node.now.clock.wall_ms()) == 1
    cluster.go(1_000)


def test_an_expiration_of_seconds_excuses_what_follows_from_forgetting_and_a_day_does_not(make: Callable[..., Orders]) -> None:
    cluster = make(ProducerStateKept)
    assert not may_forget_producers(cluster.world)
    cluster.cluster.shape = replace(NAMED["1+3"], config={**NAMED["1+3"].config, EXPIRATION: "4000"})
    assert may_forget_producers(cluster.world)
