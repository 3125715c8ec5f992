"""Consumers that read over fetch sessions (KIP-227), where what is left out counts as known, and from followers (KIP-392)."""

from __future__ import annotations

from typing import Any

from kraftlite.broker.handlers import fetch
from kraftlite.broker.handlers.fetch_sessions import FetchSession
from kraftlite.controller.placement import StripedPlacer
from kraftlite.model.ids import NodeId
from kraftlite.replication import consume
from kraftlite.replication.consume import ConsumePath
from kraftlite.replication.partition import Partition
from kraftlite.sim.workloads import rack_settings, sessions, waiting
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


def in_every_run(patch: Patch) -> None:
    """Every run has the consumer, not a third of them."""
    patch.set(sessions, "ONE_SEED_IN", 1)


@mutant(
    "session-keeps-the-first-offset",
    "a fetch session goes on from the offset with which a partition came into it",
    expects=("liveness: sessions",),
    lens=in_every_run,
)
def session_keeps_the_first_offset(patch: Patch) -> None:
    """KIP-227: a request names what has changed. KAFKA-8150's neighbourhood: sessions that mix up what their clients asked."""
    patch.edit(FetchSession, "update", ("known.ask(partition)", "pass"))


@mutant(
    "session-tells-of-new-hws-only",
    "records that a session has not told yet are told when the HW moves, not before",
    expects=("liveness: sessions",),
    lens=in_every_run,
)
def session_tells_of_new_hws_only(patch: Patch) -> None:
    """CP-20: an answer that a byte limit cut short is followed by one with the same HW, and with records."""
    patch.edit(FetchSession, "must_tell", ("tell = size > 0 or error or", "tell = error or"))


def racks_in_every_run(patch: Patch) -> None:
    """The brokers of every run stand in racks, and it has a consumer that names its own."""
    patch.set(rack_settings, "ONE_SEED_IN", 1)


@mutant(
    "sent-out-of-the-isr",
    "a consumer is sent to a replica in its rack, whether that is in the ISR or not",
    expects=("55",),
    lens=racks_in_every_run,
)
def sent_out_of_the_isr(patch: Patch) -> None:
    """KIP-392: a replica that has fallen behind serves what is old, and none of what is new."""
    patch.edit(ConsumePath, "_preferred_replica", ("in leader.isr.committed:", "in leader.followers:"))


@mutant(
    "follower-serves-to-its-end",
    "a follower serves consumers up to its end, not up to its HW",
    expects=("29",),
    lens=racks_in_every_run,
)
def follower_serves_to_its_end(patch: Patch) -> None:
    """KIP-392: what a follower has, and not every replica in the ISR, may be gone after the next election."""
    patch.edit(ConsumePath, "_read", ("else hw\n", "else hw if partition.leader is not None else log.leo\n"))


@mutant(
    "sent-to-who-lags",
    "a consumer is sent to a replica that has not fetched what it wants yet",
    expects=("55", "38"),
    lens=racks_in_every_run,
)
def sent_to_who_lags(patch: Patch) -> None:
    """KIP-392: it is out of range there, and begins anew where it is told to."""
    patch.edit(
        ConsumePath, "_preferred_replica", ("follower.log_start_offset <= offset <= leo", "follower.log_start_offset <= offset")
    )


def _one_rack(racks: list[Any], first: int, turn: int, replication_factor: int) -> tuple[NodeId, ...]:
    replicas: list[NodeId] = []
    while len(replicas) < replication_factor:
        found = racks[first].next(turn) if replicas else racks[first].next_unfenced(turn)
        if found is None:
            first = (first + 1) % len(racks)
        else:
            replicas.append(found)
    return tuple(replicas)


@mutant(
    "replicas-in-one-rack",
    "the replicas of a partition are in one rack as long as that has brokers",
    expects=("50",),
    lens=racks_in_every_run,
)
def replicas_in_one_rack(patch: Patch) -> None:
    """KIP-36: a rack that fails takes all of them."""
    patch.set(StripedPlacer, "_place_one", staticmethod(_one_rack))


def waiting_in_every_run(patch: Patch) -> None:
    """Every run has consumers that wait for seconds."""
    patch.set(waiting, "comes_with", lambda seed: True)


@mutant(
    "fetch-sleeps-through-the-hw",
    "a consumer that waits is not woken when the high watermark passes new records",
    expects=("96",),
    lens=waiting_in_every_run,
)
def fetch_sleeps_through_the_hw(patch: Patch) -> None:
    """CP-18: each record is as late as `fetch.max.wait.ms`, and nothing says why."""
    patch.edit(Partition, "hw_changed", ("wake_all(self.waiters)", "pass"))


@mutant(
    "fetch-wants-nothing-more",
    "a fetch is answered with the first record that comes, whatever its least bytes are",
    expects=("96",),
    lens=waiting_in_every_run,
)
def fetch_wants_nothing_more(patch: Patch) -> None:
    """CP-18: thousands of consumers that asked for large answers ask for each record by itself."""
    patch.edit(consume, "may_wait", ("size < params.min_bytes", "size < 1"), also=(fetch,))
