"""Invariant 96: who waits is answered when the time is up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kraftlite.broker.lifecycle_core import BrokerState
from kraftlite.log.batch import HEADER_BYTES, parse_header
from kraftlite.model.errors import ErrorCode
from kraftlite.model.limits import MAX_INT32, MIB, RAFT_FETCH_MAX_WAIT_MS
from kraftlite.model.messages.methods import ADD_VOTER, RAFT_FETCH, REMOVE_VOTER, REPLICA_FETCH
from kraftlite.model.messages.raft import AddVoterRequest, RaftFetchRequest, RemoveVoterRequest
from kraftlite.model.messages.replica import ReplicaFetchRequest
from kraftlite.replication.api import FetchResult
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.log_files import running_log
from kraftlite.sim.service import FETCH, PRODUCE, FetchAsk, ProduceAsk
from kraftlite.sim.services.admin import TENANT_PRODUCE, TENANT_TIMEOUT_MS, TenantAsk
from kraftlite.sim.services.logs import DELETE_RECORDS, DeleteAsk
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

_LOOK_US: Final = 100_000
_QUIET_US: Final = 300_000
"""All nodes may have been paused when none has run for so long, and nobody has looked."""
PATIENCE_MS: Final = 700
"""Deadlines may be rounded up to 250 ms, and a pause is known to a look. A produce may wait for 1500 ms, and what waits for its
deadline is to be found."""


@dataclass(slots=True)
class _Wait:
    boots: int
    arrived_us: int
    since_us: int
    limit_ms: int
    lost_us: int = 0
    """For how long, in time that counts, its replica has not led here: removed, offline, or the follower of another one."""
    enough_us: int = 0
    """For how long, in the same time, the replica has had for a fetch what it waits for."""


class WaitsEnd(Checker):
    """A fetch of a client, of a follower or of a voter is answered when its longest wait is over, and a produce that all must
    acknowledge, or a DeleteRecords that all must follow, when its timeout is, whatever else the node waits for; a change of the
    voters after `controller.quorum.request.timeout.ms`, also by a leader that has ceased to lead. The time counts in which the
    node runs: not while it is paused or its processor is slow.

    A produce does not wait for that where its replica leads no more: it is answered then (RP-09).

    A client's fetch waits no longer than for its least bytes, and no answer without an error comes in the first third of its time
    that has less and says nothing else (CP-18).

    A batch of a transaction may wait for its coordinator before it is appended, and is left out.
    """

    numbers: ClassVar[tuple[int, ...]] = (96,)
    only_methods = (FETCH, PRODUCE, REPLICA_FETCH, RAFT_FETCH, ADD_VOTER, REMOVE_VOTER, DELETE_RECORDS, TENANT_PRODUCE)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._waits: dict[AnyExchange, _Wait] = {}
        self._looked_us = 0
        self._now_us = world.cluster.loop.now_us

    def on_arrival(self, exchange: AnyExchange) -> None:
        limit_ms = _limit_ms(exchange, self.world.nodes[exchange.target])
        if limit_ms is not None and exchange not in self._waits:
            boots = self.world.nodes[exchange.target].boots
            self._waits[exchange] = _Wait(boots, self._now_us(), self._now_us(), limit_ms)

    def on_step(self, node: SimHost) -> None:
        now_us = self._now_us()
        passed_us = now_us - self._looked_us
        if passed_us >= _LOOK_US:
            self._looked_us = now_us
            self._look(now_us, passed_us)

    def _look(self, now_us: int, passed_us: int) -> None:
        nodes, loop = self.world.nodes, self.world.cluster.loop
        over: list[AnyExchange] = []
        for exchange, wait in self._waits.items():
            node = nodes[exchange.target]
            if node.boots != wait.boots or node.now is None or exchange.handler is None or exchange.handler.done():
                over.append(exchange)
            elif node.paused or loop.is_slowed(node.now.pid) or passed_us > _QUIET_US:
                wait.since_us += passed_us
            else:
                slowest = 1_000_000 + node.slowest_ppm
                if (now_us - wait.since_us) * slowest > (wait.limit_ms + PATIENCE_MS) * 1_000 * 1_000_000:
                    self.fail(
                        f"node {node.node_id} has not answered {exchange.method} of {exchange.source}, which may wait for "
                        f"{wait.limit_ms} ms, for {(now_us - wait.since_us) // 1000} ms: {exchange.request}"
                    )
                if isinstance(exchange.request, ProduceAsk | TenantAsk):
                    self._check_led(node, exchange.request, wait, passed_us)
                elif isinstance(exchange.request, FetchAsk):
                    self._check_woken(node, exchange.request, wait, passed_us)
        for exchange in over:
            del self._waits[exchange]

    def _check_led(self, node: SimHost, ask: ProduceAsk | TenantAsk, wait: _Wait, passed_us: int) -> None:
        broker = None if node.node is None else node.node.broker
        partition = None if broker is None else broker.replicas.partition(ask.tp)
        ends = broker is None or not node.started or broker.lifecycle.state is BrokerState.SHUTTING_DOWN
        if ends or (partition is not None and partition.is_leader):
            wait.lost_us = 0
            return
        wait.lost_us += passed_us
        if wait.lost_us * (1_000_000 + node.slowest_ppm) > PATIENCE_MS * 1_000 * 1_000_000:
            lost_ms = wait.lost_us // 1000
            self.fail(f"node {node.node_id} has led {ask.tp} no more for {lost_ms} ms, and a produce waits there still")

    def _check_woken(self, node: SimHost, ask: FetchAsk, wait: _Wait, passed_us: int) -> None:
        readable = _readable(node, ask)
        if readable is None or readable < min(ask.min_bytes, ask.max_bytes):
            wait.enough_us = 0
            return
        wait.enough_us += passed_us
        if wait.enough_us * (1_000_000 + node.slowest_ppm) > PATIENCE_MS * 1_000 * 1_000_000:
            self.fail(
                f"node {node.node_id} has had enough for a fetch for {wait.enough_us // 1000} ms, and it waits there still: {ask}"
            )

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        wait, ask = self._waits.get(exchange), exchange.request
        if wait is None or not isinstance(ask, FetchAsk) or not isinstance(response, FetchResult):
            return
        if response.error is not ErrorCode.NONE or response.diverging is not None or response.preferred_read_replica is not None:
            return
        node, waited_us = self.world.nodes[exchange.target], self._now_us() - wait.arrived_us
        readable = _readable(node, ask)
        if 3 * waited_us < 1_000 * ask.max_wait_ms and readable is not None and readable < min(ask.min_bytes, ask.max_bytes):
            self.fail(
                f"node {node.node_id} answers a fetch after {waited_us // 1000} ms with {len(response.records)} bytes, and has "
                f"{readable} for it: {ask}"
            )


def _readable(node: SimHost, ask: FetchAsk) -> int | None:
    """The bytes that a fetch could get, if nothing but its least bytes counted; None when nothing is said of that. What goes on
    in another segment is enough for any fetch."""
    log = running_log(node, ask.tp)
    if log is None or log.config.compacted or ask.offset < log.log_start_offset:
        return None
    bound = log.last_stable_offset if ask.read_committed else log.hw
    if ask.offset >= bound:
        return 0
    following = next((base for base in log.segment_base_offsets if base > ask.offset), None)
    if following is not None and bound > following:
        return MAX_INT32
    with node.disk.undisturbed():
        return len(log.read(ask.offset, MIB, up_to=bound))


def _limit_ms(exchange: AnyExchange, node: SimHost) -> int | None:
    """Return how long the answer may take; None when nothing is said of that."""
    request = exchange.request
    if isinstance(request, RaftFetchRequest):
        return min(max(request.max_wait_ms, 0), RAFT_FETCH_MAX_WAIT_MS)
    if isinstance(request, AddVoterRequest | RemoveVoterRequest):
        return node.config.get_int("controller.quorum.request.timeout.ms")
    if isinstance(request, FetchAsk | ReplicaFetchRequest):
        return max(request.max_wait_ms, 0)
    if isinstance(request, DeleteAsk):
        return max(request.timeout_ms, 0)
    if isinstance(request, TenantAsk):
        return None if request.batch is None else TENANT_TIMEOUT_MS
    if (
        not isinstance(request, ProduceAsk)
        or request.acks != -1
        or len(request.batch) < HEADER_BYTES
        or parse_header(request.batch).is_transactional
    ):
        return None
    return max(request.timeout_ms, 0)
