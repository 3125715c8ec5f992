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
