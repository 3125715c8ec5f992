"""Faults that hit the disk of a node while it runs."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.injection.handler import Handler

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector


def disk_slow(injector: Injector, plan: FaultPlan) -> None:
    node = injector.one(plan)
    if node is not None:
        slow = injector.cluster.flush_us
        slow[node.node_id] = (plan.amount // 4, plan.amount)
        injector.end_of(plan, lambda: slow.pop(node.node_id, None))


def disk_stall(injector: Injector, plan: FaultPlan) -> None:
    node = injector.one(plan)
    if node is not None:
        slow = injector.cluster.flush_us
        slow[node.node_id] = (plan.for_ms * 1000, plan.for_ms * 1000)
        injector.end_of(plan, lambda: slow.pop(node.node_id, None))


def disk_full(injector: Injector, plan: FaultPlan) -> None:
    disk_fault(injector, plan, ("pwritev", "write_file", "makedirs"), errno.ENOSPC, times=None)


def disk_error(injector: Injector, plan: FaultPlan) -> None:
    ops = ("pread", "pwritev", "flush", "sync", "flush-end", "open", "write_file")
    disk_fault(injector, plan, (ops[plan.amount % len(ops)],), errno.EIO, times=1)


def disk_fault(injector: Injector, plan: FaultPlan, ops: Sequence[str], code: int, times: int | None) -> None:
    node = injector.one(plan)
    if node is None:
        return
    injector.disk_victims.add(node.node_id)
    errors = [node.disk.inject(op, code=code, times=times) for op in ops]

    def heal() -> None:
        for it in errors:
            if it in node.disk.errors:
                node.disk.errors.remove(it)
        if not node.running:
            injector.boot_later(node, 0)

    injector.end_of(plan, heal)


KINDS: Final[Mapping[str, Handler]] = {
    "disk-slow": disk_slow,
    "disk-stall": disk_stall,
    "disk-full": disk_full,
    "disk-error": disk_error,
}
