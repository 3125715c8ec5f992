"""What a node makes of time: loops that stand still, clocks that are wrong, messages that come late, odd sizes of its parts."""

from __future__ import annotations

import random
from dataclasses import replace

from kraftlite.controller.driver import ControllerDriver
from kraftlite.metadata.loader import MetadataLoader
from kraftlite.raft.context import RaftContext
from kraftlite.replication.alter_partition import AlterPartitionCore
from kraftlite.sim import troubles, tuning
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from tests.sim.mutants.catalog import Change, mutant
from tests.sim.mutants.patching import Patch


def sleeping_leaders(patch: Patch) -> None:
    """Again and again a controller stands still for longer than the others wait, and gets all of its mail when it wakes up."""

    def draw(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
        found: list[FaultPlan] = []
        for at_ms in range(500, duration_ms, 5_000):
            found += troubles.sleeping_leader(rng, shape, at_ms)
        return found

    patch.set(troubles, "draw", draw)


def jumping_clocks(patch: Patch) -> None:
    """The wall clocks of all nodes jump by up to a day, back or forth, and stay there for seconds."""
    patch.set(
        troubles,
        "draw",
        lambda rng, shape, duration_ms: [
            FaultPlan(at_ms=at_ms, kind="clocks", amount=86_400_000) for at_ms in range(500, duration_ms, 5_000)
        ],
    )


def tuned(**values: int) -> Change:
    """Every node is built with these numbers."""
    return lambda patch: patch.set(tuning, "draw", lambda rng, usual: replace(usual, **values))


@mutant(
    "sessions-on-the-wall",
    "the sessions of brokers are measured with the wall clock",
    expects=("37", "liveness", "19", "14", "crash"),
    lens=jumping_clocks,
)
def sessions_on_the_wall(patch: Patch) -> None:
    """CE-20. Kleppmann, "How to do distributed locking": a jump of NTP expires what was alive, or keeps what is dead."""
    patch.edit(
        ControllerDriver,
        "_pump",
        ("now_ms = self._ports.clock.now_ms()", "now_ms = self._ports.clock.wall_ms() - 1_700_000_000_000"),
    )


@mutant(
    "rest-of-the-changes-forgotten",
    "changes of ISRs that do not fit into one request are forgotten",
    expects=("liveness", "33"),
    lens=tuned(isr_changes_per_request=1),
)
def rest_of_the_changes_forgotten(patch: Patch) -> None:
    """KIP-497's batching: what is left over waits for the next request, or for ever."""
    patch.edit(
        AlterPartitionCore,
        "request",
        ("    if not self._sent:\n", "    self._waiting.clear()\n    if not self._sent:\n"),
    )


@mutant(
    "snapshot-slice-dropped",
    "the record at which loading a metadata snapshot pauses is not replayed",
    expects=("16", "crash", "14"),
    lens=tuned(records_per_slice=2, metadata_cleaning_interval_ms=50, snapshot_chunk_bytes=400),
)
def snapshot_slice_dropped(patch: Patch) -> None:
    """An off-by-one at the border of a turn, which a thousand records a turn never show."""
    patch.edit(
        MetadataLoader,
        "_load_snapshot",
        ("                delta.replay(record)", "                replayed + 1 >= self._slice or delta.replay(record)"),
    )


@mutant(
    "restored-without-the-log",
    "a node takes the epoch that its file says, though its log is further",
    expects=("2", "crash", "SelfCheck"),
    lens=sleeping_leaders,
)
def restored_without_the_log(patch: Patch) -> None:
    """RF-11: an older quorum-state comes back, and records of epochs that the node denies are in its log."""
    patch.edit(RaftContext, "restore", ("if self.metalog.last_epoch > election.epoch:", "if False:"))
