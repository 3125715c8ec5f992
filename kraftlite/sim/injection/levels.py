"""Faults around feature levels: a broker with older software, and the moment at which an administrator raises a level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kraftlite.metadata.features import LATEST_METADATA_VERSION, METADATA_VERSION, SUPPORTED_FEATURES
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.injection.handler import Handler
from kraftlite.sim.workloads.levels import finalized

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector


def old_software(injector: Injector, plan: FaultPlan) -> None:
    """The broker is killed and starts with software that has `amount` levels of `metadata.version` beyond the finalized one; when
    the fault is over it gets its own again."""
    node = injector.one(plan)
    level = finalized(injector.cluster)
    if node is None or level is None:
        return
    most = min(level + plan.amount, LATEST_METADATA_VERSION)
    node.offers = tuple(replace(it, max_level=most) if it.name == METADATA_VERSION else it for it in SUPPORTED_FEATURES)
    injector.kill(node)
    injector.boot_later(node, 1)

    def undo() -> None:
        node.offers = None
        injector.kill(node)
        injector.boot_later(node, 1)

    injector.end_of(plan, undo)


def raise_level(injector: Injector, plan: FaultPlan) -> None:
    """Not a fault: the administrator raises `metadata.version` by `amount` levels now."""
    injector.note(f"{plan.kind} by {plan.amount}")
    injector.cluster.raise_level(plan.amount)


KINDS: Final[Mapping[str, Handler]] = {"old-software": old_software, "raise-level": raise_level}
