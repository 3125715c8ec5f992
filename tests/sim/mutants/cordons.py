"""Directories that are cordoned: what is made and moved meanwhile, and what the controller knows."""

from __future__ import annotations

from kraftlite.broker.lifecycle_core import BrokerLifecycleCore
from kraftlite.broker.log_dirs_moves import ReplicaMoves
from kraftlite.broker.log_dirs_placement import Placement
from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.sim.workloads import cordons as workload
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import playing
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import long_absences


def cordoned_directories(patch: Patch) -> None:
    """Every run has the administrator who cordons directories, and no faults."""
    patch.set(workload, "comes_with", lambda seed: True)
    playing(lambda rng, shape, at_ms: [])(patch)


@mutant(
    "cordoned-gets-new-logs",
    "new replicas are made in directories that are cordoned",
    expects=("100",),
    lens=cordoned_directories,
)
def cordoned_gets_new_logs(patch: Patch) -> None:
    """JB-13: the disk that is to be emptied fills up."""
    patch.edit(Placement, "candidates", (" if state.path not in self.cordoned", ""))


@mutant(
    "cordoned-gets-moves",
    "a replica is moved into a directory that is cordoned",
    expects=("100",),
    lens=cordoned_directories,
)
def cordoned_gets_moves(patch: Patch) -> None:
    """JB-13."""
    patch.edit(ReplicaMoves, "_check_cordoned", ("if target.path in self._placement.cordoned:", "if False:"))


@mutant(
    "one-cordon-stops-all-moves",
    "nothing is moved into any directory while one is cordoned",
    expects=("100",),
    lens=cordoned_directories,
)
def one_cordon_stops_all_moves(patch: Patch) -> None:
    """JB-13: what is in the cordoned one cannot move out."""
    patch.edit(ReplicaMoves, "_check_cordoned", ("if target.path in self._placement.cordoned:", "if self._placement.cordoned:"))


@mutant(
    "cordoned-broker-is-chosen",
    "the controller places new partitions on brokers whose every directory is cordoned",
    expects=("50",),
    lens=cordoned_directories,
)
def cordoned_broker_is_chosen(patch: Patch) -> None:
    """JB-13, CM-16."""
    patch.edit(ClusterControl, "usable_brokers", (" and not (cordoning and broker.is_cordoned)", ""))


@mutant(
    "lifted-cordon-is-not-told",
    "a broker does not tell the controller that nothing is cordoned any more",
    expects=("100",),
    lens=cordoned_directories,
)
def lifted_cordon_is_not_told(patch: Patch) -> None:
    """JB-13: it gets no new replicas until it restarts."""
    rule = "if directory_ids != self._cordoned:"
    patch.edit(BrokerLifecycleCore, "step", (rule, "if directory_ids and directory_ids != self._cordoned:"))


def cordoned_over_restarts(patch: Patch) -> None:
    """Every run has that administrator, and brokers restart."""
    patch.set(workload, "comes_with", lambda seed: True)
    playing(long_absences)(patch)


@mutant(
    "cordons-forgotten-at-a-restart",
    "a broker that registers anew has no cordoned directories until it says so again",
    expects=("100",),
    lens=cordoned_over_restarts,
)
def cordons_forgotten_at_a_restart(patch: Patch) -> None:
    """JB-13: its first heartbeat says so, and until then new replicas are placed there."""
    rule = "tuple(directory for directory in existing.cordoned_log_dirs if directory in request.log_dirs)"
    patch.edit(ClusterControl, "_still_cordoned", (rule, "None"))
