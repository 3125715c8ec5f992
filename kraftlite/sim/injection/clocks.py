"""Faults that hit clocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.injection.handler import Handler

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector


def wall_jump(injector: Injector, plan: FaultPlan) -> None:
    node = injector.one(plan)
    if node is not None:
        offsets = injector.cluster.wall_offset_ms
        offsets[node.node_id] = offsets.get(node.node_id, 0) + plan.amount
        if node.now is not None:
            node.now.clock.jump_wall(plan.amount)


KINDS: Final[Mapping[str, Handler]] = {
    "wall-jump": wall_jump,
}
